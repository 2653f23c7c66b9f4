//! An image as one file, as registries and container runtimes take it: an OCI layout in a tar.

use std::{collections::BTreeMap, fs::File, io::Write, path::Path};

use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::store::{CONFIG, Image, LAYER, MANIFEST, architecture, header, hex};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archived {
    /// The digest of the image.
    pub digest: String,
    /// How many bytes a node pulls.
    pub compressed: u64,
}

/// Writes an image of one layer to a file. The same contents always give the same bytes.
pub fn write_archive(image: &Image, file: &Path) -> Result<Archived> {
    let mut blobs = BTreeMap::new();
    let mut put = |media_type: &str, bytes: Vec<u8>| {
        let (digest, size) = (format!("sha256:{}", hex(&Sha256::digest(&bytes))), bytes.len());
        blobs.insert(digest.replace(':', "/"), bytes);
        json!({ "mediaType": media_type, "digest": digest, "size": size })
    };
    let layer = image.layer()?;
    let plain = Value::from(format!("sha256:{}", hex(&Sha256::digest(&layer))));
    // No name and no time in the head of it.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&layer)?;
    let layer = put(&format!("{LAYER}+gzip"), gzip.finish()?);
    let config = put(CONFIG, serde_json::to_vec(&image.described(&plain))?);
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
    let mut manifest = put(MANIFEST, serde_json::to_vec(&manifest)?);
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    manifest["platform"] = json!({ "os": "linux", "architecture": architecture() });
    let name = image.names.first().context("the image has no name")?;
    let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    // The first is the standard's, the second what containerd reads a whole name from.
    manifest["annotations"] =
        json!({ "org.opencontainers.image.ref.name": tag, "io.containerd.image.name": name });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest] });
    // For those who read only what `docker save` writes, such as `cargo sandbox load-image`.
    let path = |of: &Value| format!("blobs/{}", of["digest"].as_str().unwrap_or_default().replace(':', "/"));
    let saved = json!([{ "Config": path(&config), "RepoTags": [name], "Layers": [path(&layer)] }]);

    let written = || -> Result<()> {
        let mut tar = tar::Builder::new(File::create(file)?);
        let mut add = |path: &str, bytes: &[u8]| {
            let mut header = header(tar::EntryType::Regular, 0o644, bytes.len() as u64);
            tar.append_data(&mut header, path, bytes)
        };
        add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        add("index.json", &serde_json::to_vec(&index)?)?;
        add("manifest.json", &serde_json::to_vec(&saved)?)?;
        for (path, bytes) in &blobs {
            add(&format!("blobs/{path}"), bytes)?;
        }
        tar.into_inner()?.sync_all()?;
        Ok(())
    };
    written().with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Archived { digest, compressed: layer["size"].as_u64().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn files(archive: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(File::open(archive).unwrap()).entries().unwrap() {
            let (mut entry, mut bytes) = (entry.unwrap(), vec![]);
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        files
    }

    #[test]
    fn an_archive_is_an_oci_layout_whose_digests_are_right() {
        let path = std::env::temp_dir().join(format!("federlet-archive-{}.tar", std::process::id()));
        let image = Image::new(&["ghcr.io/me/app:1"]).file("bin/app", 0o755, b"hello".to_vec()).user("65532");
        let archived = write_archive(&image, &path).unwrap();
        let files = files(&path);
        let again = write_archive(&image, &path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(again, archived, "the same contents are the same bytes");

        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(json(&files["manifest.json"])[0]["RepoTags"][0], "ghcr.io/me/app:1");
        assert_eq!(json(&files["oci-layout"])["imageLayoutVersion"], "1.0.0");
        for (name, bytes) in files.iter().filter(|(name, _)| name.starts_with("blobs/")) {
            assert_eq!(name, &format!("blobs/sha256/{}", hex(&Sha256::digest(bytes))));
        }
        let blob = |of: &Value| {
            files[&format!("blobs/{}", of["digest"].as_str().unwrap().replace(':', "/"))].clone()
        };
        let index = json(&files["index.json"]);
        let entry = &index["manifests"][0];
        assert_eq!(entry["digest"], archived.digest.as_str());
        assert_eq!(entry["annotations"]["io.containerd.image.name"], "ghcr.io/me/app:1");
        assert_eq!(entry["annotations"]["org.opencontainers.image.ref.name"], "1");
        let manifest = json(&blob(entry));
        let config = json(&blob(&manifest["config"]));
        assert_eq!(config["config"]["User"], "65532");
        let layer = &manifest["layers"][0];
        assert_eq!(layer["size"].as_u64(), Some(archived.compressed));
        let mut plain = vec![];
        flate2::read::GzDecoder::new(&*blob(layer)).read_to_end(&mut plain).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", hex(&Sha256::digest(&plain))));
    }
}
