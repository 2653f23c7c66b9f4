//! The images of a sandbox, made here from what the machine has: nothing can be pulled without a network.

mod archive;
mod store;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

pub use self::{
    archive::{Archived, write_archive},
    store::{Image, Store},
};
use crate::{builds::Binaries, shell, worker::PAUSE_IMAGE};

/// Under which name charts and tests find Federlet itself.
pub const FEDERLET_IMAGE: &str = "ghcr.io/federlet/federlet:dev";

/// The cluster DNS server.
pub const COREDNS_IMAGE: &str = "registry.federlet.local/coredns:1";

/// Where Debian and distroless images have them.
pub(crate) const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The most that a node may have to pull, in bytes.
pub const MOST: u64 = 30 << 20;

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Fills the store with everything but Federlet itself.
pub async fn build_basics(store: &Store, binaries: &Binaries) -> Result<()> {
    let busybox = static_busybox().context("busybox-static is not installed")?;
    let applets = shell::run(&busybox, ["--list"]).await?;
    let base = |names: &[&str]| busybox_image(names, &busybox, &applets);
    store.add(&base(&[PAUSE_IMAGE])?.command(&["/bin/sleep", "2147483647"]))?;
    store.add(&base(&names("busybox", &["latest", "1", "1.36"]).each())?.command(&["/bin/sh"]))?;
    // 1.27 is the one of `examples/`, where a region pulls it from a registry of its own.
    let mut nginx = names("nginx", &["latest", "1", "1.27", "1.29", "alpine"]);
    nginx.0.push("registry.hangzhou.example.com/nginx:1.27".to_owned());
    store.add(
        &base(&nginx.each())?
            .file("usr/share/nginx/html/index.html", 0o644, WELCOME.as_bytes().to_vec())
            // Requests are logged, as people expect of `kubectl logs`.
            .command(&["/bin/httpd", "-f", "-vv", "-p", "80", "-h", "/usr/share/nginx/html"])
            .port(80),
    )?;
    store.add(
        &Image::new(&[COREDNS_IMAGE])
            .file("coredns", 0o755, fs::read(binaries.coredns()?)?)
            .entrypoint(&["/coredns"]),
    )?;
    Ok(())
}

/// Gives a store Federlet itself.
pub async fn build_federlet(store: &Store, binary: &Path) -> Result<()> {
    store.add(&federlet(binary, FEDERLET_IMAGE).await?)
}

/// Federlet as an image: the binary, the libraries that it loads and the authorities that everybody trusts, nothing else.
pub async fn federlet(binary: &Path, name: &str) -> Result<Image> {
    let mut image = Image::new(&[name])
        .file("usr/local/bin/federlet", 0o755, stripped(binary).await?)
        .file("etc/passwd", 0o644, b"root:x:0:0:::\nfederlet:x:65532:65532:::\n".to_vec())
        .file("etc/nsswitch.conf", 0o644, b"hosts: files dns\n".to_vec())
        .entrypoint(&["/usr/local/bin/federlet"])
        .user("65532:65532")
        .env(PATH);
    for library in shared_libraries(&shell::run("ldd", [binary]).await?) {
        let contents = fs::read(&library).with_context(|| format!("cannot read {}", library.display()))?;
        image = image.file(library.strip_prefix("/").unwrap_or(&library), 0o755, contents);
    }
    // A member may have a certificate that any browser would take.
    let authorities = fs::read(AUTHORITIES).with_context(|| {
        format!("cannot read {AUTHORITIES}, which the image needs: install the package ca-certificates")
    })?;
    Ok(image.file(AUTHORITIES.trim_start_matches('/'), 0o644, authorities))
}

/// How much a node pulls, as people say it; an error if that is more than an image may have.
pub fn weighed(compressed: u64) -> Result<String> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let size = format!("{:.1} MiB compressed", mib(compressed));
    if compressed > MOST {
        bail!("the image has {size}, and {:.0} MiB are the most that it may have", mib(MOST));
    }
    Ok(size)
}

/// The program without what only debuggers read, which is most of it. `strip` comes with the linker.
async fn stripped(binary: &Path) -> Result<Vec<u8>> {
    let small = binary.with_extension(format!("{}.stripped", std::process::id()));
    shell::run("strip", ["-o".as_ref(), small.as_os_str(), binary.as_os_str()]).await?;
    let contents = fs::read(&small);
    fs::remove_file(&small).ok();
    Ok(contents?)
}

/// A busybox that needs no libraries.
pub fn static_busybox() -> Option<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox"].iter().map(PathBuf::from).find(|path| {
        // A dynamic program names its loader among the first bytes.
        fs::read(path).is_ok_and(|program| {
            let head = &program[..program.len().min(4096)];
            program.starts_with(b"\x7fELF") && !head.windows(4).any(|w| w == b"/lib")
        })
    })
}

struct Names(Vec<String>);

impl Names {
    fn each(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}

fn names(repository: &str, tags: &[&str]) -> Names {
    Names(tags.iter().map(|tag| format!("docker.io/library/{repository}:{tag}")).collect())
}

fn busybox_image(names: &[&str], busybox: &Path, applets: &str) -> Result<Image> {
    let program = fs::read(busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    let mut image = Image::new(names)
        .file("bin/busybox", 0o755, program)
        .file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:::\n".to_vec())
        .file("etc/group", 0o644, b"root:x:0:\nnobody:x:65534:\n".to_vec())
        .folder("tmp", 0o1777)
        .folder("root", 0o700)
        .env(PATH);
    for applet in applets.lines().filter(|name| *name != "busybox") {
        image = image.link(format!("bin/{applet}"), "busybox");
    }
    if !applets.lines().any(|name| name == "sh") {
        bail!("{} has no shell", busybox.display());
    }
    Ok(image)
}

/// The paths that `ldd` prints: `libc.so.6 => /lib/…/libc.so.6 (0x…)` or `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn shared_libraries(ldd: &str) -> Vec<PathBuf> {
    ldd.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

const WELCOME: &str =
    "<!doctype html><title>Welcome</title><h1>Welcome to nginx of the Federlet sandbox</h1>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_what_ldd_prints() {
        let ldd = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found = shared_libraries(ldd);
        assert_eq!(
            found,
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
        assert!(shared_libraries("\tstatically linked\n").is_empty());
    }

    #[test]
    fn an_image_that_grew_too_large_is_refused() {
        assert_eq!(weighed(MOST).unwrap(), "30.0 MiB compressed");
        let said = weighed(MOST + (1 << 20)).unwrap_err().to_string();
        assert_eq!(said, "the image has 31.0 MiB compressed, and 30 MiB are the most that it may have");
    }
}
