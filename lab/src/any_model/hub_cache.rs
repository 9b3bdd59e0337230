//! Models in the hub's cache on this machine.

use std::path::{Path, PathBuf};

/// Returns the `config.json` of a model that transformers or `hf download` put into the hub's cache on this machine: that of the branch `main`, else
/// any.
pub fn in_hub_cache(name: &str) -> Option<PathBuf> {
    let is_part = |part: &str| {
        let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(usual)
    };
    if name.split('/').count() > 2 || !name.split('/').all(is_part) {
        return None;
    }
    let folder = hub_cache()?.join(format!("models--{}", name.replace('/', "--")));
    let config = |revision: &Path| {
        Some(folder.join("snapshots").join(revision).join("config.json")).filter(|file| file.exists())
    };
    let main = std::fs::read_to_string(folder.join("refs/main")).ok();
    let of_main = main.and_then(|revision| config(Path::new(revision.trim())));
    of_main.or_else(|| {
        let mut revisions: Vec<_> = std::fs::read_dir(folder.join("snapshots")).ok()?.flatten().collect();
        revisions.sort_by_key(std::fs::DirEntry::file_name);
        revisions.iter().find_map(|revision| config(Path::new(&revision.file_name())))
    })
}

/// The folder of huggingface_hub's cache, by the variables that it reads.
fn hub_cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE"));
    let home = || set("HF_HOME").map(|home| home.join("hub"));
    let cache = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    own.or_else(home).or_else(|| Some(cache()?.join("huggingface/hub")))
}
