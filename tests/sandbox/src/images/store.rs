//! Images as a registry keeps them: blobs by their digest, and names that point to manifests.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A folder of images.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

/// An image of one layer, to be added to a store.
#[derive(Debug)]
pub struct Image {
    pub(super) names: Vec<String>,
    entries: BTreeMap<PathBuf, Entry>,
    config: serde_json::Map<String, Value>,
}

#[derive(Debug)]
enum Entry {
    Folder(u32),
    File(u32, Vec<u8>),
    Link(String),
}

impl Image {
    /// An empty image with these full names, such as `docker.io/library/nginx:latest`.
    pub fn new(names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self { names, entries: BTreeMap::new(), config: serde_json::Map::new() }
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, mode: u32, contents: Vec<u8>) -> Self {
        self.entries.insert(path.into(), Entry::File(mode, contents));
        self
    }

    /// Adds a folder. Those that files need come by themselves.
    #[must_use]
    pub fn folder(mut self, path: impl Into<PathBuf>, mode: u32) -> Self {
        self.entries.insert(path.into(), Entry::Folder(mode));
        self
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn link(mut self, path: impl Into<PathBuf>, target: &str) -> Self {
        self.entries.insert(path.into(), Entry::Link(target.to_owned()));
        self
    }

    /// What runs unless a pod says otherwise (`command` in Docker's words).
    #[must_use]
    pub fn command(self, words: &[&str]) -> Self {
        self.configure("Cmd", json!(words))
    }

    /// What always runs, before a pod's `args`.
    #[must_use]
    pub fn entrypoint(self, words: &[&str]) -> Self {
        self.configure("Entrypoint", json!(words))
    }

    /// Who runs it.
    #[must_use]
    pub fn user(self, user: &str) -> Self {
        self.configure("User", json!(user))
    }

    /// Its environment.
    #[must_use]
    pub fn env(self, variable: &str) -> Self {
        self.configure("Env", json!([variable]))
    }

    /// The port it is known to listen on.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.configure("ExposedPorts", json!({ format!("{port}/tcp"): {} }))
    }

    fn configure(mut self, key: &str, value: Value) -> Self {
        self.config.insert(key.to_owned(), value);
        self
    }

    /// How it is run, for an image whose one layer has this digest before it is compressed.
    pub(super) fn described(&self, layer: &Value) -> Value {
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": [layer] },
        })
    }

    /// The same contents always give the same bytes: no clocks, a fixed order.
    pub(super) fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut folders = std::collections::BTreeSet::new();
        for (path, entry) in &self.entries {
            let parents: Vec<_> = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
            for parent in parents.into_iter().rev() {
                let made = matches!(self.entries.get(parent), Some(Entry::Folder(_)));
                if !made && folders.insert(parent.to_owned()) {
                    tar.append_data(&mut header(tar::EntryType::Directory, 0o755, 0), parent, &[][..])?;
                }
            }
            match entry {
                Entry::Folder(mode) => {
                    tar.append_data(&mut header(tar::EntryType::Directory, *mode, 0), path, &[][..])?;
                }
                Entry::File(mode, contents) => {
                    let mut header = header(tar::EntryType::Regular, *mode, contents.len() as u64);
                    tar.append_data(&mut header, path, contents.as_slice())?;
                }
                Entry::Link(target) => {
                    tar.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), path, target)?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }
}

impl Store {
    /// A store in that folder, which need not exist.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Adds an image under all its names.
    pub fn add(&self, image: &Image) -> Result<()> {
        let layer = image.layer()?;
        let layer = self.put(LAYER, &layer)?;
        let config = self.put(CONFIG, &serde_json::to_vec(&image.described(&layer["digest"]))?)?;
        self.add_manifest(&config, &[layer], &image.names)
    }

    /// Takes over the images of an archive as `docker save` writes it, and returns their names.
    pub fn import(&self, archive: &Path) -> Result<Vec<String>> {
        let unpacked = tempfile_dir(&self.dir)?;
        let result = self.import_unpacked(archive, &unpacked);
        fs::remove_dir_all(&unpacked).ok();
        result.with_context(|| format!("cannot read images from {}", archive.display()))
    }

    fn import_unpacked(&self, archive: &Path, unpacked: &Path) -> Result<Vec<String>> {
        let file = File::open(archive)?;
        tar::Archive::new(BufReader::new(file)).unpack(unpacked)?;
        let Ok(list) = fs::read(unpacked.join("manifest.json")) else {
            bail!(
                "it has no manifest.json: write it with `docker save` or `podman save --format docker-archive`"
            );
        };
        let list: Vec<Value> = serde_json::from_slice(&list)?;
        let mut names = Vec::new();
        for entry in &list {
            // An archive may come from anywhere; its paths must stay inside.
            let read = |path: Option<&str>| -> Result<Vec<u8>> {
                let path = Path::new(path.context("manifest.json names no file")?);
                if path.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
                    bail!("manifest.json names a file outside of the archive: {}", path.display());
                }
                Ok(fs::read(unpacked.join(path))?)
            };
            let config = self.put(CONFIG, &read(entry["Config"].as_str())?)?;
            let mut layers = Vec::new();
            for layer in entry["Layers"].as_array().into_iter().flatten() {
                let bytes = read(layer.as_str())?;
                let is_gzip = bytes.starts_with(&[0x1f, 0x8b]);
                let kind = if is_gzip { format!("{LAYER}+gzip") } else { LAYER.to_owned() };
                layers.push(self.put(&kind, &bytes)?);
            }
            let tags = entry["RepoTags"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let tags: Vec<String> = tags.map(full_name).collect();
            self.add_manifest(&config, &layers, &tags)?;
            names.extend(tags);
        }
        if names.is_empty() {
            bail!("none of its images has a name");
        }
        Ok(names)
    }

    fn add_manifest(&self, config: &Value, layers: &[Value], names: &[String]) -> Result<()> {
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
        let manifest = self.put(MANIFEST, &serde_json::to_vec(&manifest)?)?;
        for name in names {
            let (repository, tag) = name.rsplit_once(':').context("an image has no tag")?;
            let path = self.tag_path(repository, tag)?;
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir)?;
            }
            fs::write(path, manifest["digest"].as_str().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Keeps a blob and describes it.
    fn put(&self, media_type: &str, bytes: &[u8]) -> Result<Value> {
        let digest = hex(&Sha256::digest(bytes));
        let path = self.blob_path(&format!("sha256:{digest}"))?;
        if !path.exists() {
            let dir = path.parent().context("blobs have a folder")?;
            fs::create_dir_all(dir)?;
            let draft = path.with_extension(format!("{}.draft", std::process::id()));
            fs::write(&draft, bytes)?;
            fs::rename(&draft, &path)?;
        }
        Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() }))
    }

    /// The manifest that a tag or a digest stands for: its digest and its bytes.
    pub fn manifest(&self, repository: &str, reference: &str) -> Result<(String, Vec<u8>)> {
        let digest = if reference.starts_with("sha256:") {
            reference.to_owned()
        } else {
            fs::read_to_string(self.tag_path(repository, reference)?)?
        };
        let bytes = fs::read(self.blob_path(&digest)?)?;
        Ok((digest, bytes))
    }

    /// Opens a blob.
    pub fn blob(&self, digest: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.blob_path(digest)?)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn blob_path(&self, digest: &str) -> Result<PathBuf> {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            bail!("'{digest}' is no digest");
        }
        Ok(self.dir.join("blobs").join(hex))
    }

    fn tag_path(&self, repository: &str, tag: &str) -> Result<PathBuf> {
        let parts = || repository.split('/').chain([tag]);
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:".contains(&b))
        };
        if !parts().all(plain) {
            bail!("'{repository}:{tag}' is no image");
        }
        Ok(parts().fold(self.dir.join("tags"), |path, part| path.join(part)))
    }
}

/// `nginx` means `docker.io/library/nginx:latest`.
fn full_name(name: &str) -> String {
    let (repository, tag) = match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, "latest"),
    };
    let repository = match repository.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => repository.to_owned(),
        Some(_) => format!("docker.io/{repository}"),
        None => format!("docker.io/library/{repository}"),
    };
    format!("{repository}:{tag}")
}

pub(super) fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header
}

pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tempfile_dir(parent: &Path) -> Result<PathBuf> {
    let dir = parent.join(format!("import-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

#[cfg(test)]
mod tests;
