# The one entry for people and for CI. `just --list` shows what there is.

# Everything that CI checks, in its order.
check: fmt-check clippy deny test

# Start a host and two members, with everything they need.
up *args:
    cargo sandbox up {{args}}

# Stop them.
down:
    cargo sandbox down

# All tests, on real clusters.
test *args:
    cargo sandbox test {{args}}

# Federlet as an image, without Docker: an OCI archive in federlet.oci.tar.
image *args:
    cargo sandbox image {{args}}

# Tests that need no cluster: seconds.
unit:
    cargo test --workspace --lib --bins

# Federlet beside a floor and a peer, on clusters of its own; takes a while.
bench *args:
    cargo compare kubelets {{args}}
    cargo compare members {{args}}
    cargo compare webhook
    cargo compare matching

# Format the code.
fmt:
    cargo fmt --all

fmt-check:
    cargo fmt --all --check

clippy:
    cargo clippy --workspace --all-targets -- -D warnings

# Documentation of the code, without warnings.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Licences, banned crates and sources of dependencies.
deny:
    cargo deny --workspace check bans licenses sources

# Known vulnerabilities of dependencies; needs the advisory database.
advisories:
    cargo deny --workspace check advisories
