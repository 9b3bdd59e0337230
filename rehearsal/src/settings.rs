//! Settings from the environment. The launcher has checked them: an invalid value ends the process.

use std::path::PathBuf;
use std::sync::LazyLock;

/// Most cards that a process can have.
pub(crate) const MAX_CARDS: usize = 16;

/// Settings of the card and of this library.
pub(crate) struct Settings {
    /// `VRAMLAB_REHEARSAL_NAME`: name of the card.
    pub(crate) name: String,
    /// `VRAMLAB_REHEARSAL_MEMORY`: bytes of each card.
    pub(crate) memory: u64,
    /// `VRAMLAB_REHEARSAL_CAPABILITY`: compute capability, as in `8.6`.
    pub(crate) capability: (i32, i32),
    /// `VRAMLAB_REHEARSAL_MULTIPROCESSORS`. Without it, as many as a usual card of this capability has.
    pub(crate) multiprocessors: Option<i32>,
    /// `VRAMLAB_REHEARSAL_CARDS`: number of cards.
    pub(crate) cards: usize,
    /// `VRAMLAB_REHEARSAL_CONTEXT`: bytes that each process takes on a card that it uses, besides its allocations.
    pub(crate) context_bytes: u64,
    /// `VRAMLAB_REHEARSAL_CUDNN`: `ask` (as without it) if the wheel's own cuDNN says which plans there are and what they
    /// take, `none` if it is not asked.
    pub(crate) asks_cudnn: bool,
    /// `VRAMLAB_REHEARSAL_CUDNN_WORKSPACE`: bytes of workspace of an execution plan that cuDNN is not asked about.
    pub(crate) cudnn_workspace: i64,
    /// `VRAMLAB_REHEARSAL_LOG`: a file to which all processes append.
    pub(crate) log: Option<PathBuf>,
    /// `VRAMLAB_REHEARSAL_SHARED`: a file through which processes share the cards' memory. Without it each process has
    /// the cards for itself.
    pub(crate) shared: Option<PathBuf>,
    /// `VRAMLAB_REHEARSAL_RANKS`: a folder in which ranks meet. Without it, a folder next to the shared file.
    pub(crate) ranks: Option<PathBuf>,
    /// `VRAMLAB_REHEARSAL_STARTED`: ranks of the whole run that were started. Without it, all ranks.
    pub(crate) started: Option<Vec<u32>>,
    /// `VRAMLAB_REHEARSAL_CUDA`: release of CUDA, as in `12.8`. Without it, that of the CUDA runtime in the process, or
    /// 13.0.
    pub(crate) cuda: Option<i32>,
    /// `VRAMLAB_REHEARSAL_LATE_EVENTS=1`: events are complete only when something waits for them, not immediately.
    pub(crate) late_events: bool,
}

static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::read);

/// Returns the settings.
pub(crate) fn settings() -> &'static Settings {
    &SETTINGS
}

impl Settings {
    fn read() -> Self {
        let settings = Self {
            name: variable("NAME").unwrap_or_else(|| "Rehearsed GPU".into()),
            memory: number("MEMORY").unwrap_or(80 << 30),
            capability: pair("CAPABILITY").unwrap_or((9, 0)),
            multiprocessors: number("MULTIPROCESSORS"),
            cards: number("CARDS").unwrap_or(1),
            context_bytes: number("CONTEXT").unwrap_or(0),
            asks_cudnn: asks_cudnn(),
            cudnn_workspace: number::<u32>("CUDNN_WORKSPACE").unwrap_or(0).into(),
            log: variable("LOG").map(PathBuf::from),
            shared: variable("SHARED").map(PathBuf::from),
            ranks: variable("RANKS").map(PathBuf::from),
            started: started(),
            cuda: pair("CUDA").map(|(major, minor)| major * 1000 + minor * 10),
            late_events: number::<u8>("LATE_EVENTS") == Some(1),
        };
        if settings.cards > MAX_CARDS {
            refuse("CARDS", &settings.cards.to_string(), "at most 16");
        }
        settings
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("VRAMLAB_REHEARSAL_{name}")).ok().filter(|value| !value.is_empty())
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = variable(name)?;
    Some(value.parse().unwrap_or_else(|_| refuse(name, &value, "a number")))
}

fn asks_cudnn() -> bool {
    match variable("CUDNN").as_deref() {
        None | Some("ask") => true,
        Some("none") => false,
        Some(other) => refuse("CUDNN", other, "ask or none"),
    }
}

/// Reads numbers that are separated by commas.
fn started() -> Option<Vec<u32>> {
    let value = variable("STARTED")?;
    let ranks: Option<Vec<u32>> = value.split(',').map(|rank| rank.parse().ok()).collect();
    Some(ranks.unwrap_or_else(|| refuse("STARTED", &value, "ranks as in 0,3,7")))
}

/// Reads two numbers with a point between them. The second one may be missing.
fn pair(name: &str) -> Option<(i32, i32)> {
    let value = variable(name)?;
    let (first, second) = value.split_once('.').unwrap_or((&value, "0"));
    let parse = |text: &str| text.parse::<u16>().ok().map(i32::from);
    Some(parse(first).zip(parse(second)).unwrap_or_else(|| refuse(name, &value, "two numbers as in 8.6")))
}

fn refuse(name: &str, value: &str, expected: &str) -> ! {
    eprintln!("vramlab rehearsal: VRAMLAB_REHEARSAL_{name} is `{value}`; expected {expected}");
    std::process::exit(2);
}
