use std::io::IsTerminal;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use federlet_node::TRACE;
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use tracing_subscriber::{
    EnvFilter, Layer, filter::Targets, layer::SubscriberExt, registry::LookupSpan, util::SubscriberInitExt,
};

/// How the process tells what it does.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs, metrics and traces")]
pub(crate) struct TelemetryArgs {
    /// What to log: error, warn, info, debug, trace, or directives such as `info,federlet_node=debug`.
    #[arg(long, env = "FEDERLET_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    log_level: String,

    /// Lines for people or for machines.
    #[arg(long, env = "FEDERLET_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,

    /// Where Prometheus finds `/metrics`, over plain HTTP; empty for nowhere.
    #[arg(long, env = "FEDERLET_METRICS_ADDR", default_value = ":10255", value_name = "ADDRESS")]
    pub(crate) metrics_addr: String,

    /// Send traces: `otlp` for gRPC to the collector of OTEL_EXPORTER_OTLP_ENDPOINT [default: none].
    #[arg(long, env = "FEDERLET_TRACE_EXPORTER", value_name = "EXPORTER")]
    trace_exporter: Option<TraceExporter>,

    /// Which share of the traces to send: always, never, or a number from 0 to 1.
    #[arg(
        long,
        env = "FEDERLET_TRACE_SAMPLE_RATE",
        default_value = "always",
        value_parser = parse_sampler,
        value_name = "RATE"
    )]
    trace_sample_rate: Sampler,

    /// Under which name they are sent.
    #[arg(long, env = "FEDERLET_TRACE_SERVICE_NAME", default_value = "federlet", value_name = "NAME")]
    trace_service_name: String,

    /// A tag for every trace, as `key=value`; can be given several times.
    #[arg(
        long = "trace-tag",
        env = "FEDERLET_TRACE_TAGS",
        value_delimiter = ',',
        value_parser = parse_tag,
        value_name = "TAG"
    )]
    trace_tags: Vec<KeyValue>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TraceExporter {
    Otlp,
}

/// What must be finished before the process ends.
pub(crate) struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// These call an error what we try again, and say so; and they warn of what somebody chose.
const QUIET: [(&str, &str); 3] = [
    ("kube_client", "::client::builder=off"),
    ("kube_client", "::client::tls=error"),
    ("kube_runtime", "::watcher=error"),
];

impl TelemetryArgs {
    /// Starts to log, to standard error, and to send traces. Belongs into a runtime.
    pub(crate) fn init(&self) -> anyhow::Result<Telemetry> {
        let filter = EnvFilter::try_new(&self.log_level).with_context(|| {
            format!("--log-level {:?} is not a level or a list of directives", self.log_level)
        })?;
        // Spans are for traces; in a log they would repeat what each line says.
        let mut filter = filter.add_directive(format!("{TRACE}=off").parse()?);
        for (library, part) in QUIET {
            if !self.log_level.contains(library) {
                filter = filter.add_directive(format!("{library}{part}").parse()?);
            }
        }
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = match self.log_format {
            LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        let traces = match self.trace_exporter {
            Some(TraceExporter::Otlp) => Some(self.otlp()?),
            None => None,
        };
        let registry = tracing_subscriber::registry().with(lines.with_filter(filter));
        registry.with(traces.as_ref().map(spans)).try_init().context("cannot start to log")?;
        Ok(Telemetry { traces })
    }

    fn otlp(&self) -> anyhow::Result<SdkTracerProvider> {
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().build();
        let exporter = exporter.context("cannot send traces over OTLP")?;
        let resource = Resource::builder()
            .with_service_name(self.trace_service_name.clone())
            .with_attributes(self.trace_tags.clone())
            .build();
        Ok(SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(self.trace_sample_rate.clone())
            .with_resource(resource)
            .build())
    }
}

fn spans<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let only_spans = Targets::new().with_target(TRACE, tracing::Level::INFO);
    tracing_opentelemetry::layer().with_tracer(provider.tracer("federlet")).with_filter(only_spans)
}

impl Telemetry {
    /// Sends what is left.
    pub(crate) async fn finish(self) {
        let Some(traces) = self.traces else { return };
        // It blocks until the collector answers or its own timeout is over.
        let ended = tokio::task::spawn_blocking(move || traces.shutdown()).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("some traces could not be sent");
        }
    }
}

fn parse_sampler(text: &str) -> anyhow::Result<Sampler> {
    match text {
        "always" => Ok(Sampler::AlwaysOn),
        "never" => Ok(Sampler::AlwaysOff),
        number => match number.parse::<f64>() {
            Ok(rate) if (0.0..=1.0).contains(&rate) => Ok(Sampler::TraceIdRatioBased(rate)),
            _ => bail!("a rate is always, never, or a number from 0 to 1"),
        },
    }
}

fn parse_tag(text: &str) -> anyhow::Result<KeyValue> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok(KeyValue::new(key.to_owned(), value.to_owned())),
        _ => bail!("a tag is key=value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_tags_are_checked() {
        assert!(matches!(parse_sampler("0.25"), Ok(Sampler::TraceIdRatioBased(rate)) if rate == 0.25));
        assert!(matches!(parse_sampler("never"), Ok(Sampler::AlwaysOff)));
        for bad in ["", "-1", "1.5", "NaN", "sometimes"] {
            assert!(parse_sampler(bad).is_err(), "{bad}");
        }
        assert!(parse_tag("a=b=c").is_ok());
        assert!(parse_tag("=b").is_err() && parse_tag("a").is_err());
    }
}
