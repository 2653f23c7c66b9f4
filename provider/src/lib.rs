//! A member cluster, or a region of one, behind the contracts of the virtual kubelet.
