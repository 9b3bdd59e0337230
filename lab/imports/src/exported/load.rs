//! A network of an export. A file is read once for all runs that share [`Reads`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use lab_base::error::{Error, Result};

use super::loss::LossName;
use super::model::{Exported, is_export};
use super::read::{Read, read, read_archive};
use super::zoo;

/// The exports that were read last, for further runs of the same files; clones share them. A file is read again when it has changed.
#[derive(Clone, Default)]
pub struct Reads(Arc<Mutex<Vec<Last>>>);

/// A file, and what was read of it.
struct Last(Identity, Arc<Read>);

/// How many files are kept: a run has at most a network and its adversary.
const KEPT: usize = 2;

/// What a file is: while this is equal, its contents are taken to be.
#[derive(PartialEq, Eq)]
struct Identity {
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: (u64, u64),
}

impl Identity {
    /// That of a network in no file.
    fn of_name(name: &str) -> Self {
        Self {
            path: name.into(),
            bytes: 0,
            modified: None,
            #[cfg(unix)]
            inode: (0, 0),
        }
    }

    /// `None` if the file cannot be asked; reading it then says why.
    fn at(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        Some(Self {
            path: path.to_path_buf(),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            inode: {
                use std::os::unix::fs::MetadataExt;
                (metadata.dev(), metadata.ino())
            },
        })
    }
}

impl Reads {
    /// Reads an export, unless it is one of those that were read last. `loss` is the loss to minimise in place of the default one, which is the network's
    /// own scalar if it returns one.
    ///
    /// # Errors
    /// Those of [`load`].
    pub fn load(&self, path: &Path, loss: Option<LossName>) -> Result<Exported> {
        Exported::from_read(self.read(path)?, loss)
    }

    /// The version of PyTorch that wrote an export, such as `2.15.0+cu132`; `None` if the file cannot be read or does not say.
    pub fn torch(&self, path: &Path) -> Option<String> {
        self.read(path).ok()?.torch.clone()
    }

    /// A network that this program has as a recorded graph, with so many layers in place of its own, and examples of so many tokens. Unless these are said, they
    /// are `usual` or fewer.
    ///
    /// # Errors
    /// A number of layers or tokens that the network does not have.
    pub fn recorded(
        &self,
        name: &str,
        layers: Option<usize>,
        tokens: Option<usize>,
        usual: usize,
        loss: Option<LossName>,
    ) -> Result<Exported> {
        let positions = zoo::positions(name)?;
        let identity = Identity::of_name(&format!("{name} {layers:?}"));
        let read = || read_archive(zoo::archive(name, layers)?, Path::new(name));
        let read = self.kept(Some(identity), Path::new(name), read)?;
        let model = Exported::from_read(read, loss)?;
        match tokens {
            Some(tokens) if tokens > positions => {
                Err(Error::usage("sequence", format!("{tokens}: {name} has {positions} positions")))
            }
            Some(tokens) => model.of_length(tokens),
            None => model.of_length(usual.min(positions)),
        }
    }

    /// A graph that was kept of a network which the user's Python builds: an export, or a folded graph in a file. `name`: the network, for messages.
    ///
    /// # Errors
    /// A file that is damaged; tokens for which the graph does not hold.
    pub fn kept_graph(&self, path: &Path, name: &str, tokens: Option<usize>) -> Result<Exported> {
        let model = Exported::from_read(self.graph(path, name)?, None)?;
        match tokens {
            Some(tokens) => model.of_length(tokens),
            None => Ok(model),
        }
    }

    /// The version of PyTorch that wrote a kept graph; `None` if the file cannot be read or does not say.
    pub fn torch_of_graph(&self, path: &Path, name: &str) -> Option<String> {
        self.graph(path, name).ok()?.torch.clone()
    }

    fn graph(&self, path: &Path, name: &str) -> Result<Arc<Read>> {
        match is_export(path) {
            true => self.read(path),
            false => {
                self.kept(Identity::at(path), path, || read_archive(zoo::archive_in(path, name)?, Path::new(name)))
            }
        }
    }

    fn read(&self, path: &Path) -> Result<Arc<Read>> {
        self.kept(Identity::at(path), path, || read(path))
    }

    fn kept(&self, identity: Option<Identity>, path: &Path, read: impl FnOnce() -> Result<Read>) -> Result<Arc<Read>> {
        // Held while the file is read: runs side by side read it once.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().find(|Last(known, _)| Some(known) == identity.as_ref());
        if let Some(Last(_, read)) = known {
            return Ok(read.clone());
        }
        let read = Arc::new(read()?);
        kept.retain(|Last(other, _)| other.path != path);
        kept.extend(identity.map(|identity| Last(identity, read.clone())));
        if kept.len() > KEPT {
            kept.remove(0);
        }
        Ok(read)
    }
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reads")
    }
}

/// Always equal, since it is not a setting: runs are compared without the files that were read for them.
impl PartialEq for Reads {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Reads an export. `loss` is the loss to minimise in place of the default one, which is the network's own scalar if it returns one.
///
/// # Errors
/// [`Error::Usage`](lab_base::error::Error::Usage) naming file, entry and node: the file is not an export, is of another version or is damaged; it has operators (all are named at
/// once), inputs or outputs that are not supported.
pub fn load(path: &Path, loss: Option<LossName>) -> Result<Exported> {
    Exported::from_read(Arc::new(read(path)?), loss)
}
