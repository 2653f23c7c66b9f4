//! A short digest that is the same in every process.

/// FNV-1a, 32 bits.
pub(crate) fn short(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
