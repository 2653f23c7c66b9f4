use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("federlet-store-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn image() -> Image {
    Image::new(&["docker.io/library/tool:1"])
        .file("a/b/c", 0o755, b"hi".to_vec())
        .link("a/d", "b/c")
        .folder("tmp", 0o1777)
}

#[test]
fn an_image_is_found_by_its_name_and_is_complete() {
    let scratch = Scratch::new("complete");
    let store = Store::new(&scratch.0);
    store.add(&image()).unwrap();
    let (digest, manifest) = store.manifest("docker.io/library/tool", "1").unwrap();
    assert_eq!(store.manifest("any", &digest).unwrap().1, manifest);
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let layer = store.blob(manifest["layers"][0]["digest"].as_str().unwrap()).unwrap();
    let mut archive = tar::Archive::new(layer.as_slice());
    let paths: Vec<_> =
        archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect();
    assert_eq!(paths, ["a", "a/b", "a/b/c", "a/d", "tmp"].map(String::from));
    let config = store.blob(manifest["config"]["digest"].as_str().unwrap()).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
}

#[test]
fn the_same_contents_are_the_same_bytes() {
    assert_eq!(image().layer().unwrap(), image().layer().unwrap());
}

#[test]
fn nothing_outside_of_the_store_can_be_asked_for() {
    let scratch = Scratch::new("outside");
    let store = Store::new(&scratch.0);
    for (repository, reference) in
        [("../..", "etc"), ("a", "../b"), ("a//b", "c"), ("a", ""), ("a", "sha256:../../etc/passwd")]
    {
        assert!(store.manifest(repository, reference).is_err(), "{repository} {reference}");
    }
    assert!(store.blob("sha256:zz").is_err());
}

#[test]
fn short_names_mean_what_docker_means_by_them() {
    for (short, full) in [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.29", "docker.io/library/nginx:1.29"),
        ("me/app", "docker.io/me/app:latest"),
        ("ghcr.io/me/app:2", "ghcr.io/me/app:2"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
    ] {
        assert_eq!(full_name(short), full);
    }
}

#[test]
fn an_archive_as_docker_writes_it_is_taken_over() {
    let scratch = Scratch::new("import");
    let archive = scratch.0.join("app.tar");
    let mut tar = tar::Builder::new(File::create(&archive).unwrap());
    let manifest = br#"[{"Config":"c.json","RepoTags":["app:7"],"Layers":["l/layer.tar"]}]"#;
    for (path, bytes) in [("manifest.json", &manifest[..]), ("c.json", b"{}"), ("l/layer.tar", b"layer")] {
        tar.append_data(&mut header(tar::EntryType::Regular, 0o644, bytes.len() as u64), path, bytes)
            .unwrap();
    }
    tar.finish().unwrap();
    let store = Store::new(scratch.0.join("store"));
    assert_eq!(store.import(&archive).unwrap(), ["docker.io/library/app:7"]);
    assert!(store.manifest("docker.io/library/app", "7").is_ok());
}

#[test]
fn an_archive_cannot_name_files_outside_of_itself() {
    let scratch = Scratch::new("escape");
    let archive = scratch.0.join("bad.tar");
    let mut tar = tar::Builder::new(File::create(&archive).unwrap());
    let manifest = br#"[{"Config":"../../../etc/hostname","RepoTags":["app:7"],"Layers":[]}]"#;
    tar.append_data(
        &mut header(tar::EntryType::Regular, 0o644, manifest.len() as u64),
        "manifest.json",
        &manifest[..],
    )
    .unwrap();
    tar.finish().unwrap();
    let error = Store::new(scratch.0.join("store")).import(&archive).unwrap_err();
    assert!(format!("{error:#}").contains("outside of the archive"), "{error:#}");
}
