//! What users do with Federlet, against the real clusters of the sandbox.
