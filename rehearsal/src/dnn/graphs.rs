//! The graph interface (`cudnnBackend…`). The wheel's own library builds the graphs, chooses and plans, for the card's
//! properties instead of a handle; nothing is executed. Where it cannot be asked or refuses everything, plans are made up
//! (`made_up.rs`).

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::library::{Library, library};
use super::made_up::{self, attribute};
use super::{SUCCESS, properties, status};
use crate::argument::{In, Out};
use crate::settings::settings;
use crate::work::work;
use crate::{card, handles, log, planning, values};

/// `cudnnBackendDescriptorType_t`.
mod kind {
    use std::ffi::c_int;

    pub(super) const ENGINE: c_int = 2;
    pub(super) const CONFIGURATION: c_int = 3;
    pub(super) const HEURISTICS: c_int = 4;
    pub(super) const CONVOLUTIONS: std::ops::RangeInclusive<c_int> = 10..=12;
    pub(super) const VARIANT_PACK: c_int = 16;
}

/// Attributes that are set, as `cudnnBackendAttributeName_t` numbers them.
mod set {
    use std::ffi::c_int;

    pub(super) const HEURISTIC_MODE: c_int = 200;
    pub(super) const HEURISTIC_GRAPH: c_int = 201;
    pub(super) const HEURISTIC_PROPERTIES: c_int = 204;
    pub(super) const PLAN_HANDLE: c_int = 400;
    pub(super) const PLAN_CONFIGURATION: c_int = 401;
    pub(super) const PLAN_PROPERTIES: c_int = 407;
    pub(super) const GRAPH_HANDLE: c_int = 800;
    pub(super) const GRAPH_OPERATIONS: c_int = 801;
    pub(super) const ENGINE_GRAPH: c_int = 1300;
    pub(super) const ENGINE_INDEX: c_int = 1301;
    pub(super) const ENGINE_BEHAVIOUR: c_int = 1305;
    pub(super) const ENGINE_PROPERTIES: c_int = 1307;
    pub(super) const PROPERTIES_DEVICE: c_int = 2700;
    pub(super) const PROPERTIES_HANDLE: c_int = 2701;
}

/// `cudnnBackendAttributeType_t`.
const TYPE_I64: c_int = 3;
const TYPE_DESCRIPTOR: c_int = 15;
const TYPE_BEHAVIOUR: c_int = 19;

/// `CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION`: to finish a plan, the engine compiles its kernel (seconds, with NVRTC).
const COMPILES: c_int = 0;

/// `CUDNN_HEUR_MODE_FALLBACK`: the last list that is asked for.
const FALLBACK: c_int = 2;

/// Name of a plan in the log.
const PLAN: &str = "cudnn execution plan";

/// Bytes by which a card's workspace can differ from what was asked for a product of cuBLASLt, or an engine of one
/// capability: a tile of partial sums for each multiprocessor, at most 128 x 256 floats of 4 bytes, and alignment. All of
/// the 972 that were measured on an H100 are inside, and one is at its end.
fn range() -> i64 {
    const TILE: i64 = 128 * 256 * 4;
    const ALIGNMENT: i64 = 512;
    i64::from(card::multiprocessors()) * TILE + ALIGNMENT
}

/// Where a plan's workspace is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// The settings: the library was not asked, or refused.
    #[default]
    MadeUp,
    /// The library.
    Asked,
    /// The library, without what cuBLASLt takes for itself on a card.
    AskedOfProducts,
    /// The library, of an engine that is made for one compute capability. What it takes can depend on what the
    /// properties do not tell.
    AskedOfOneCapability,
}

/// The last plan whose workspace a program asked for: where it is from, its engine, its bytes.
static LAST: Mutex<Option<(Source, i64, i64)>> = Mutex::new(None);

/// Returns the last plan whose workspace a program asked for since the last call.
pub(crate) fn take_last_plan() -> Option<(Source, i64, i64)> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// What is kept of a descriptor.
#[derive(Clone, Copy, Default)]
struct Descriptor {
    kind: c_int,
    /// No library stands behind it.
    is_made_up: bool,
    /// The library has a descriptor at this address.
    is_of_library: bool,
    /// Of a graph: it is one convolution.
    is_convolution: bool,
    /// Of heuristics: the graph that they are for.
    graph: usize,
    mode: c_int,
    /// Of configurations and plans: the engine, and where the workspace is from.
    engine: i64,
    source: Source,
    /// Of configurations: the engine compiles.
    compiles: bool,
    /// Of plans whose engine compiles: the workspace, which the configuration knows. The library finishes the plan only when something
    /// else is asked for, since nothing is executed.
    unfinished: Option<i64>,
}

static DESCRIPTORS: LazyLock<Mutex<HashMap<usize, Descriptor>>> = LazyLock::new(Mutex::default);

fn descriptors() -> MutexGuard<'static, HashMap<usize, Descriptor>> {
    DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn known(descriptor: usize) -> Descriptor {
    descriptors().get(&descriptor).copied().unwrap_or_default()
}

fn note(descriptor: usize, change: impl FnOnce(&mut Descriptor)) {
    descriptors().get_mut(&descriptor).map(change);
}

/// Returns the library, if it stands behind this descriptor.
fn behind(descriptor: &Descriptor) -> Option<&'static Library> {
    library().filter(|_| descriptor.is_of_library && !descriptor.is_made_up)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendCreateDescriptor(kind: c_int, descriptor: Out<usize>) -> c_int {
    // A variant pack names memory of the card, and is only executed.
    let made = library().filter(|_| kind != kind::VARIANT_PACK).map(|library| library.create(kind));
    let (made, is_of_library) = match made {
        Some(Ok(made)) => (made, true),
        Some(Err(refused)) => return refused,
        None => (handles::new(), false),
    };
    descriptors().insert(made, Descriptor { kind, is_of_library, is_made_up: !is_of_library, ..Default::default() });
    status(descriptor.set(made))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendDestroyDescriptor(descriptor: usize) -> c_int {
    let Some(known) = descriptors().remove(&descriptor) else { return SUCCESS };
    library().filter(|_| known.is_of_library).map_or(SUCCESS, |library| library.destroy(descriptor))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendSetAttribute(
    descriptor: usize,
    attribute: c_int,
    kind: c_int,
    count: i64,
    values: usize,
) -> c_int {
    let Some(library) = behind(&known(descriptor)) else { return SUCCESS };
    let pass = || library.set(descriptor, attribute, kind, count, values);
    let first = || In::<usize>::at(values).get().unwrap_or(0);
    match attribute {
        set::GRAPH_HANDLE => SUCCESS,
        set::PLAN_HANDLE => library.set_properties(descriptor, set::PLAN_PROPERTIES),
        set::PROPERTIES_DEVICE | set::PROPERTIES_HANDLE => library.set_json(descriptor, &properties::of_the_card()),
        set::HEURISTIC_GRAPH | set::ENGINE_GRAPH => {
            let graph = first();
            note(descriptor, |known| known.graph = graph);
            let properties =
                if attribute == set::ENGINE_GRAPH { set::ENGINE_PROPERTIES } else { set::HEURISTIC_PROPERTIES };
            match pass() {
                SUCCESS => library.set_properties(descriptor, properties),
                refused => refused,
            }
        }
        set::HEURISTIC_MODE => {
            let mode = In::<c_int>::at(values).get().unwrap_or(0);
            note(descriptor, |known| known.mode = mode);
            pass()
        }
        set::GRAPH_OPERATIONS => {
            let is_convolution = count == 1 && kind::CONVOLUTIONS.contains(&known(first()).kind);
            note(descriptor, |known| known.is_convolution = is_convolution);
            pass()
        }
        set::PLAN_CONFIGURATION => {
            let (configuration, from) = (first(), known(first()));
            let unfinished = from.compiles.then(|| workspace_of(library, configuration)).flatten();
            note(descriptor, |known| {
                (known.engine, known.source, known.is_made_up) = (from.engine, from.source, from.is_made_up);
                known.unfinished = unfinished;
            });
            if from.is_made_up { SUCCESS } else { pass() }
        }
        _ => pass(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendFinalize(descriptor: usize) -> c_int {
    let known = known(descriptor);
    let Some(library) = behind(&known).filter(|_| known.unfinished.is_none()) else { return SUCCESS };
    let finished = library.finalize(descriptor);
    match known.kind {
        kind::HEURISTICS if finished != SUCCESS && is_last(&known) => {
            note(descriptor, |known| known.is_made_up = true);
            SUCCESS
        }
        _ => finished,
    }
}

/// True if nothing else is asked for after these heuristics: PyTorch asks for the fallback of convolutions, and not for
/// that of other graphs.
fn is_last(heuristics: &Descriptor) -> bool {
    heuristics.mode == FALLBACK || !known(heuristics.graph).is_convolution
}

/// Returns the number of a configuration's engine, and whether it compiles.
fn engine_of(library: &Library, configuration: usize) -> Option<(i64, bool)> {
    let engine = Temporary::create(library, kind::ENGINE)?;
    let place = (&raw const engine.0) as usize;
    library.get(configuration, attribute::CONFIGURATION_ENGINE, TYPE_DESCRIPTOR, 1, place).ok()?;
    let (mut index, mut behaviour) = (0_i64, [-1 as c_int; 16]);
    library.get(engine.0, set::ENGINE_INDEX, TYPE_I64, 1, (&raw mut index) as usize).ok()?;
    let (room, place) = (behaviour.len() as i64, (&raw mut behaviour) as usize);
    let compiles = library.get(engine.0, set::ENGINE_BEHAVIOUR, TYPE_BEHAVIOUR, room, place).is_ok();
    Some((index, compiles && behaviour.contains(&COMPILES)))
}

/// Returns the workspace of the plans of a configuration, if the library tells it.
fn workspace_of(library: &Library, configuration: usize) -> Option<i64> {
    let mut bytes = -1_i64;
    let place = (&raw mut bytes) as usize;
    library.get(configuration, attribute::CONFIGURATION_WORKSPACE, TYPE_I64, 1, place).ok()?;
    (bytes >= 0).then_some(bytes)
}

/// Returns where the workspaces of an engine's plans for a graph are from.
fn source_of(library: &Library, graph: usize, engine: i64) -> Source {
    if asks_for_products(library, graph, engine) == Some(true) {
        Source::AskedOfProducts
    } else if is_elsewhere(library, graph, engine) {
        Source::Asked
    } else {
        Source::AskedOfOneCapability
    }
}

/// True if an engine asks cuBLASLt for algorithms when it is configured.
fn asks_for_products(library: &Library, graph: usize, engine: i64) -> Option<bool> {
    let made = Temporary::create(library, kind::ENGINE)?;
    library.set_descriptor(made.0, set::ENGINE_GRAPH, graph);
    library.set(made.0, set::ENGINE_INDEX, TYPE_I64, 1, (&raw const engine) as usize);
    library.set_properties(made.0, set::ENGINE_PROPERTIES);
    library.finalize(made.0);
    let configuration = Temporary::create(library, kind::CONFIGURATION)?;
    library.set_descriptor(configuration.0, attribute::CONFIGURATION_ENGINE, made.0);
    planning::take_products();
    library.finalize(configuration.0);
    Some(!planning::take_products().is_empty())
}

/// True if cards of compute capability 8.0 have an engine for a graph too.
fn is_elsewhere(library: &Library, graph: usize, engine: i64) -> bool {
    static OTHER: LazyLock<Option<usize>> =
        LazyLock::new(|| super::library::library()?.describe(&properties::usual((8, 0))));
    if settings().capability < (9, 0) {
        return true;
    }
    let (Some(other), Some(properties)) = (Temporary::create(library, kind::ENGINE), *OTHER) else { return false };
    let statuses = [
        library.set_descriptor(other.0, set::ENGINE_GRAPH, graph),
        library.set(other.0, set::ENGINE_INDEX, TYPE_I64, 1, (&raw const engine) as usize),
        library.set_descriptor(other.0, set::ENGINE_PROPERTIES, properties),
        library.finalize(other.0),
    ];
    statuses == [SUCCESS; 4]
}

/// A descriptor that is destroyed when this is dropped.
struct Temporary(usize);

impl Temporary {
    fn create(library: &Library, kind: c_int) -> Option<Self> {
        library.create(kind).ok().map(Self)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(library) = library() {
            library.destroy(self.0);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendGetAttribute(
    descriptor: usize,
    attribute: c_int,
    kind: c_int,
    requested: i64,
    count: Out<i64>,
    values: usize,
) -> c_int {
    let known = known(descriptor);
    let Some(library) = behind(&known) else {
        let in_turn = matches!(attribute, attribute::HEURISTIC_RESULTS | attribute::CONFIGURATION_ENGINE);
        if in_turn && requested > 0 {
            make_up(values, 0);
        }
        if attribute == attribute::PLAN_WORKSPACE {
            told(&Descriptor { engine: -1, ..Descriptor::default() }, settings().cudnn_workspace);
        }
        return made_up::get(attribute, requested, count, values);
    };
    match known.unfinished {
        Some(bytes) if attribute == attribute::PLAN_WORKSPACE => {
            count.offer(1);
            if requested > 0 && values != 0 {
                told(&known, bytes);
                return status(Out::<i64>::at(values).set(bytes));
            }
            return SUCCESS;
        }
        Some(_) => match library.finalize(descriptor) {
            SUCCESS => note(descriptor, |known| known.unfinished = None),
            refused => return refused,
        },
        None => {}
    }
    planning::take_products();
    let found = match library.get(descriptor, attribute, kind, requested, values) {
        Ok(found) => found,
        Err(refused) => return refused,
    };
    if attribute == attribute::HEURISTIC_RESULTS {
        count.offer(list(library, &known, found, requested, values));
        return SUCCESS;
    }
    if attribute == attribute::PLAN_WORKSPACE && requested > 0 && values != 0 {
        told(&known, In::<i64>::at(values).get().unwrap_or(0));
    }
    count.offer(found);
    SUCCESS
}

/// Notes that a plan's workspace was told.
fn told(plan: &Descriptor, bytes: i64) {
    match plan.source {
        Source::MadeUp => log::once("unknown_size", PLAN),
        Source::Asked => log::once("asked_size", PLAN),
        Source::AskedOfProducts => log::once("asked_in_a_range", &range().to_string()),
        Source::AskedOfOneCapability => log::once("asked_of_one_capability", &range().to_string()),
    }
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some((plan.source, plan.engine, bytes));
}

/// Notes the engines of the configurations that the library listed, while their graph exists. The last list ends with one
/// that is made up, so that there is always a plan. Returns how many there are.
fn list(library: &Library, heuristics: &Descriptor, found: i64, requested: i64, values: usize) -> i64 {
    let listed = if values == 0 { 0 } else { found.min(requested).max(0) as usize };
    // Each configuration of an engine that computes products has asked cuBLASLt once.
    let mut limits = planning::take_products().into_iter();
    let mut engines = HashMap::new();
    for configuration in (0..listed).filter_map(|index| In::<usize>::at(values).get_at(index).ok()) {
        let Some((engine, compiles)) = engine_of(library, configuration) else { continue };
        let source = match *engines.entry(engine).or_insert_with(|| source_of(library, heuristics.graph, engine)) {
            Source::AskedOfProducts if limits.next() == Some(0) => Source::Asked,
            source => source,
        };
        note(configuration, |known| (known.engine, known.source, known.compiles) = (engine, source, compiles));
    }
    if !is_last(heuristics) {
        return found;
    }
    if values != 0 && requested > found {
        make_up(values, listed);
    }
    found + 1
}

/// Turns the caller's descriptor with an index in a list into one that no library stands behind.
fn make_up(list: usize, index: usize) {
    if let Ok(descriptor) = In::<usize>::at(list).get_at(index) {
        note(descriptor, |known| known.is_made_up = true);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendExecute(_handle: usize, _plan: usize, _variant: usize) -> c_int {
    values::launched();
    work().capture_library_call();
    SUCCESS
}
