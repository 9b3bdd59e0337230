//! Placeholder while the module is being written.
/// Who held the memory when it ran out.
#[derive(Debug)]
pub struct OutOfMemory {}
impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("oom")
    }
}
