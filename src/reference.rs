//! The pages of `docs/reference`, written by what they describe: flags by the command line, values by the charts, fields
//! by the definitions. `UPDATE_REFERENCE=1 cargo test --workspace --bin federlet reference` writes them anew.

mod fields;
mod flags;
mod values;

use std::{fs, path::Path};

use clap::CommandFactory;

/// Text that fits into a cell of a table.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;")
}

fn page(title: &str, from: &str, body: &str) -> String {
    format!("# {title}\n\nGenerated from {from}; a test compares them.\n\n{body}")
}

fn pages(root: &Path) -> anyhow::Result<Vec<(&'static str, String)>> {
    let flags = flags::markdown(&mut crate::cli::Cli::command());
    let mut values = String::new();
    for chart in ["federlet", "member"] {
        let text = fs::read_to_string(root.join(format!("charts/{chart}/values.yaml")))?;
        values += &format!("## Chart {chart}\n\n{}\n", values::markdown(&text));
    }
    let mut fields = String::new();
    let mut files: Vec<_> = fs::read_dir(root.join("policy/crds"))?.collect::<Result<_, _>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    for file in files {
        fields += &fields::markdown(&fs::read_to_string(file.path())?)?;
    }
    Ok(vec![
        ("flags.md", page("Commands and flags", "the command line itself", &flags)),
        ("values.md", page("Values of the charts", "`values.yaml` of each chart", &values)),
        (
            "fields.md",
            page("Fields of Clusters and policies", "the definitions that the host is given", &fields),
        ),
    ])
}

#[test]
fn pages_say_what_the_code_says() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("docs/reference");
    for (name, text) in pages(root)? {
        let file = folder.join(name);
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            fs::create_dir_all(&folder)?;
            fs::write(&file, &text)?;
        }
        let found = fs::read_to_string(&file).unwrap_or_default();
        anyhow::ensure!(
            found == text,
            "{} is not what the code says: UPDATE_REFERENCE=1 cargo test --workspace --bin federlet reference",
            file.display()
        );
    }
    Ok(())
}
