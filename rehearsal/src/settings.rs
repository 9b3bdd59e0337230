//! What the environment says. Whoever starts the process has checked it: a value that makes no sense ends the process.

use std::path::PathBuf;
use std::sync::LazyLock;

/// The most cards that there can be.
pub(crate) const MAX_CARDS: usize = 16;

/// The card, and how to behave.
pub(crate) struct Settings {
    /// `VRAMLAB_REHEARSAL_NAME`: what the card is called.
    pub(crate) name: String,
    /// `VRAMLAB_REHEARSAL_MEMORY`: bytes of each card.
    pub(crate) memory: u64,
    /// `VRAMLAB_REHEARSAL_CAPABILITY`: as in `8.6`.
    pub(crate) capability: (i32, i32),
    /// `VRAMLAB_REHEARSAL_MULTIPROCESSORS`; without it, those of a usual card of this capability.
    pub(crate) multiprocessors: Option<i32>,
    /// `VRAMLAB_REHEARSAL_CARDS`: how many.
    pub(crate) cards: usize,
    /// `VRAMLAB_REHEARSAL_CONTEXT`: bytes that each process takes on a card that it uses, besides what it asks for.
    pub(crate) context_bytes: u64,
    /// `VRAMLAB_REHEARSAL_CUDNN_WORKSPACE`: bytes that every execution plan of cuDNN asks for.
    pub(crate) cudnn_workspace: i64,
    /// `VRAMLAB_REHEARSAL_LOG`: a file to which all processes append.
    pub(crate) log: Option<PathBuf>,
    /// `VRAMLAB_REHEARSAL_SHARED`: a file through which processes share the cards' memory; without it each has its own.
    pub(crate) shared: Option<PathBuf>,
    /// `VRAMLAB_REHEARSAL_RANKS`: a folder in which ranks meet; without it, one beside the file that is shared.
    pub(crate) ranks: Option<PathBuf>,
    /// `VRAMLAB_REHEARSAL_STARTED`: which ranks of the whole run there are; without it, all.
    pub(crate) started: Option<Vec<u32>>,
    /// `VRAMLAB_REHEARSAL_CUDA`: the release, as in `12.8`; without it, that of the CUDA runtime in the process, or 13.0.
    pub(crate) cuda: Option<i32>,
    /// `VRAMLAB_REHEARSAL_LATE_EVENTS=1`: events are complete when something waits for them, not at once.
    pub(crate) late_events: bool,
}

static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::read);

/// What the environment says.
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

/// Numbers with commas between.
fn started() -> Option<Vec<u32>> {
    let value = variable("STARTED")?;
    let ranks: Option<Vec<u32>> = value.split(',').map(|rank| rank.parse().ok()).collect();
    Some(ranks.unwrap_or_else(|| refuse("STARTED", &value, "ranks as in 0,3,7")))
}

/// Two numbers with a point between; the second may be missing.
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
