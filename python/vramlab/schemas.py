"""The JSON of vramlab, as types.

Made by `cargo xtask json` from the structs that are written, as docs/json.md is; a test compares.
Bytes are whole numbers. A key may be absent, and keys may be added.
"""

from __future__ import annotations

from typing import Any, Optional, TypedDict


class BenchV1(TypedDict, total=False):
    """Everything that was measured."""

    version: str
    settings: RunSpec
    interrupted: bool
    devices: list[BenchedDevice]
    allocators: list[BenchedAllocator]


class CardsV1(TypedDict, total=False):
    """Every card."""

    cards: list[CardResult]
    slices: list[CardResult]
    contexts: list[MeasuredContext]


class CheckV1(TypedDict, total=False):
    """Result of a check."""

    baseline: str
    lock_schema: str
    tolerance: str
    strict: bool
    updated: bool
    verdict: Optional[str]
    passed: bool
    runs: list[CheckedRun]


class ClaimsV1(TypedDict, total=False):
    """The claims of several experiments."""

    claims: list[CheckedClaim]
    interrupted: bool
    settings: RunSpec
    device: DeviceInfo


class DevicesV1(TypedDict, total=False):
    """Every device of a build."""

    devices: list[SeenDevice]


class EstimateV1(TypedDict, total=False):
    """What the process of a training takes on a card at most. Bytes."""

    fits: Optional[bool]
    lower_bytes: int
    expected_bytes: int
    upper_bytes: int
    by_category: dict[str, EstimatedRange]
    parts: list[PartOnCard]
    allocated_bytes: int
    reserved_bytes: int
    budget_bytes: Optional[int]
    missing_bytes: Optional[int]
    premises: list[Premise]
    warnings: list[str]


class ExperimentV1(TypedDict, total=False):
    """Result of an experiment."""

    experiment: str
    question: str
    answer: ShortAnswer
    claims: list[Judged]
    rows: list[Measurement]
    tables: list[Any]
    curves: list[Curve]
    notes: list[str]
    interrupted: bool
    settings: RunSpec
    device: DeviceInfo
    shard: Optional[Shard]


class ExperimentScanV1(TypedDict, total=False):
    """A scan of experiments."""

    parameters: list[str]
    interrupted: bool
    results: list[ExperimentPoint]
    shard: Optional[Shard]


class ExplainV1(TypedDict, total=False):
    """A message, explained."""

    wording: str
    device: Optional[int]
    verdict: Optional[str]
    reason: str
    line: Optional[str]
    figures: list[ExplainedFigure]
    sums: list[ExplainedSum]
    advice: list[ExplainedAdvice]


class FitV1(TypedDict, total=False):
    """Result of a search for the largest size. Bytes unless a name says otherwise; sizes are examples or tokens."""

    settings: RunSpec
    premises: list[Premise]
    model: str
    of: str
    card: Optional[CardResult]
    budget_bytes: int
    largest: Optional[int]
    largest_without_cudnn: Optional[int]
    cudnn_version: Optional[int]
    largest_with_least_context: Optional[int]
    on_card: Optional[OnCard]
    at_maximum: bool
    gaps: list[int]
    notes: list[str]
    warnings: list[str]
    law: LawResult
    runs: list[TriedSize]
    tries: Optional[Tries]


class ListV1(TypedDict, total=False):
    """Every experiment."""

    experiments: list[ListedExperiment]


class ModelsV1(TypedDict, total=False):
    """Every network that is known by name, and the types of `config.json` that can be read."""

    models: list[ListedModel]
    model_types: list[str]


class MonitorV1(TypedDict, total=False):
    """Devices and trainings at one moment."""

    devices: list[DeviceMemory]
    runs: list[RunStatus]
    watched: list[Watched]


class NetworkV1(TypedDict, total=False):
    """A network, and what one forward pass leaves for the backward pass. Bytes are those of blocks, as PyTorch's allocator hands them out."""

    settings: RunSpec
    model: str
    description: str
    premises: list[Premise]
    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    saved_bytes: int
    modules: list[ModuleResult]
    pieces: Optional[str]
    notes: list[str]


class PlanV1(TypedDict, total=False):
    """The fastest way to make a step of so many examples on a card. Every plan was run dry."""

    settings: RunSpec
    premises: list[Premise]
    model: str
    card: Optional[CardResult]
    speeds_of: str
    budget_bytes: int
    global_batch: int
    cards: int
    machines: int
    best: Optional[PlannedResult]
    front: list[PlannedResult]
    faster: Optional[PlannedResult]
    with_more: Optional[PlannedResult]
    unlimited_seconds: float
    hand_over: Optional[HandedOver]
    tried: int
    left_out: int
    too_large: int
    allowed: list[str]
    notes: list[str]
    warnings: list[str]


class PlanCardsV1(TypedDict, total=False):
    """The fastest plan on each of several cards, the cheapest or the smallest first."""

    settings: RunSpec
    premises: list[Premise]
    global_batch: int
    cards: int
    plans: list[CardPlan]
    notes: list[str]
    warnings: list[str]


class PlanLengthsV1(TypedDict, total=False):
    """Memory of a training whose examples have different lengths. Every row was run dry."""

    settings: RunSpec
    premises: list[Premise]
    model: str
    card: Optional[CardResult]
    budget_bytes: Optional[int]
    batch: int
    examples: int
    tokens: int
    median: int
    percentile_99: int
    longest: int
    longest_that_fits: Optional[int]
    too_long: Optional[int]
    too_long_by: Optional[list[int]]
    orders: list[LengthOrder]
    notes: list[str]
    warnings: list[str]


class RehearsalV1(TypedDict, total=False):
    """A rehearsal."""

    command: list[str]
    gpu: RehearsedGpu
    world: Optional[RehearsedWorld]
    torch: Optional[str]
    fits: Optional[bool]
    lower_bytes: int
    expected_bytes: int
    upper_bytes: int
    figures_of: str
    basis: str
    parts: list[PartOnCard]
    exact: bool
    exact_to: Optional[int]
    inexact: list[Inexact]
    stopped: str
    script_exit: Optional[int]
    exception: Optional[str]
    runs: int
    with_memory_enough: Optional[RehearsedNeeds]
    what_if: Optional[WhatIfResult]
    tries: Optional[Tries]
    made_up: list[str]
    asked: list[str]
    not_reached: list[str]
    phases: list[RehearsedPhase]
    ranks: list[RehearsedRank]
    unknown_reads: list[UnknownRead]
    not_as_on_a_card: list[NotAsOnACard]
    withheld: list[str]
    withheld_count: int
    changed: list[str]
    refused: list[str]
    contacted: list[str]
    protection: RehearsedProtection
    kept_in: Optional[str]
    problems: list[str]
    snapshot: Optional[str]


class RehearsalScanV1(TypedDict, total=False):
    """A scan."""

    parameters: list[str]
    command: list[str]
    gpu: RehearsedGpu
    interrupted: bool
    points: list[RehearsalPoint]
    law: list[LawPiece]
    largest: Optional[LargestValue]
    tries: Optional[Tries]
    shard: Optional[Shard]


class ReplayV1(TypedDict, total=False):
    """A recording, and the memory of each policy. Bytes unless a name says otherwise."""

    trace: TraceResult
    settings: RunSpec
    lower_bound: BoundResult
    self_check: Optional[SelfCheck]
    device: Optional[ChosenDevice]
    policies: list[PolicyResult]


class ScanV1(TypedDict, total=False):
    """A scan."""

    parameters: list[str]
    interrupted: bool
    results: list[Point]
    notes: list[str]
    shard: Optional[Shard]


class SnapshotV1(TypedDict, total=False):
    """A device's memory in a snapshot. Bytes."""

    file: str
    device: int
    devices: int
    other_devices: list[OtherDevice]
    unread_segments: Optional[str]
    events: int
    totals: TotalsResult
    moment: Optional[MomentResult]
    out_of_memory: Optional[SnapshotOom]
    step_ends: list[int]
    steps_are_told: bool
    ranges: list[NamedRange]
    held: list[HeldResult]
    held_in_all: HeldSum
    segments: list[SegmentResult]
    before: HeldBefore
    peak: Optional[PeakOfTrace]
    left_over: list[HeldResult]
    left_over_in_all: HeldSum
    live_at_step_ends: list[int]
    growing: list[GrowingStack]


class SnapshotDiffV1(TypedDict, total=False):
    """Changes from one snapshot to another. The first of each pair is the earlier one. Bytes."""

    files: list[str]
    device: int
    other_devices: list[OtherDevice]
    other_devices_before: list[OtherDevice]
    totals: list[TotalsResult]
    changes: list[ChangedStack]
    segments_only_in: list[int]
    segment_bytes_only_in: list[int]
    requests: Optional[RequestsDiff]


class TrainV1(TypedDict, total=False):
    """Result of a run. What a device without values cannot measure is null, with the reason."""

    settings: RunSpec
    description: Optional[str]
    premises: list[Premise]
    device: Optional[DeviceInfo]
    step_columns: list[str]
    steps: list[list[Any]]
    peak: Optional[PeakResult]
    by_category: Optional[dict[str, int]]
    rings: Optional[RingBytes]
    overheads: Optional[OverheadsResult]
    losses: Optional[list[Optional[float]]]
    ms_per_step_median: Optional[float]
    ms_per_step: Optional[list[float]]
    accuracy: Optional[AccuracyResult]
    parameters: Optional[int]
    interrupted: bool
    reason: Optional[str]
    out_of_memory: Optional[OutOfMemoryResult]
    leak: Optional[Leak]
    warnings: list[str]
    memory_stats: Optional[dict[str, Any]]
    card: Optional[CardResult]
    budget_bytes: Optional[int]
    fits: Optional[bool]
    lower_bytes: int
    expected_bytes: int
    upper_bytes: int
    figures_of: str
    basis: str
    parts: list[PartOnCard]
    with_cudnn: Optional[ConvolutionBound]
    needs: NeedsResult
    needs_peak: Optional[PeakResult]
    with_expandable_segments: Optional[NeedsResult]
    checkpoints: Optional[Checkpoints]
    notes: list[str]
    summits: Optional[list[LocalPeak]]
    techniques: list[TechniqueResult]
    tries: Optional[Tries]
    chosen: Optional[ChosenNetwork]
    rehearsal: Optional[RehearsalV1]
    devices: list[StageResult]
    data_parallel: Optional[DataParallelFigures]
    ranks: list[RankResult]


class TuneV1(TypedDict, total=False):
    """Result of a search for settings. Its findings are null if the recorded settings do not reproduce the recording."""

    recorded: Optional[Candidate]
    best: Optional[Candidate]
    newer: Optional[Candidate]
    overfitted: Optional[Candidate]
    tried: list[Candidate]
    operations: Optional[SearchedOperations]
    lower_bound_bytes: int
    self_check: Optional[SelfCheck]
    device: Optional[ChosenDevice]


class WatchV1(TypedDict, total=False):
    """A command that was watched."""

    command: list[str]
    script_exit: int
    processes: list[Watched]
    predicted: Optional[PredictedPeaks]
    snapshot: Optional[SnapshotV1]
    kept: Optional[str]


class AccuracyResult(TypedDict, total=False):
    """Test examples that are classified correctly."""

    right: int
    of: int
    share: float


class AtPeak(TypedDict, total=False):
    """Memory that a line of the script held at the peak of requested bytes."""

    requested_bytes: int
    count: int
    where: Optional[str]
    inside: Optional[str]
    operator: Optional[str]
    category: Optional[str]


class BenchedAllocator(TypedDict, total=False):
    """An allocation policy."""

    policy: str
    operations: int
    ns_per_operation: float


class BenchedDevice(TypedDict, total=False):
    """A device, or the reason why it is absent."""

    backend: str
    index: Optional[int]
    name: str
    kind: str
    software: bool
    available: bool
    reason: Optional[str]
    roofs: RoofResult
    kernels: list[BenchedKernel]
    training: list[BenchedKernel]
    skipped: list[SkippedKernel]


class BenchedKernel(TypedDict, total=False):
    """A kernel, or a training step. Times are those of one run, in microseconds: median, least, most."""

    name: str
    size: str
    dtype: str
    us: float
    us_min: float
    us_max: float
    samples: int
    runs_per_sample: int
    bytes: int
    flops: int
    launches: int
    gb_per_s: float
    gflop_per_s: float
    of_roof: Optional[float]
    bound: str
    batch: Optional[int]
    peak_reserved_bytes: Optional[int]


class Both(TypedDict, total=False):
    """A figure of the recording, and of the replay."""

    recorded: int
    replayed: int


class BoundResult(TypedDict, total=False):
    """Lower bound: memory that every allocator needs."""

    bytes: int
    operation: int
    allocations: int


class Calls(TypedDict, total=False):
    """Calls to the driver, by kind."""

    total: int
    segment_allocs: int
    segment_frees: int
    maps: int
    unmaps: int
    refusals: int


class Candidate(TypedDict, total=False):
    """One choice of settings and its cost."""

    alloc_conf: str
    searched: Cost
    held_out: Optional[Cost]
    whole: Optional[Cost]


class CardPlan(TypedDict, total=False):
    """The fastest plan on a card."""

    card: str
    title: str
    budget_bytes: int
    best: Optional[PlannedResult]
    price_per_hour: Optional[float]
    price_of_1000_steps: Optional[float]


class CardResult(TypedDict, total=False):
    """A card."""

    name: str
    title: str
    total_bytes: int
    total_source: str
    least_context_bytes: int
    usual_context_bytes: int
    context_bytes: int
    context_source: Optional[str]
    compute_capability: int
    multiprocessors: int
    profile: Optional[str]


class CategoryResult(TypedDict, total=False):
    """Memory held for one purpose."""

    category: str
    requested_bytes: int
    guessed: bool


class Change(TypedDict, total=False):
    """A figure before and now."""

    name: str
    baseline: int
    now: int


class ChangedStack(TypedDict, total=False):
    """A stack that holds more or less than before."""

    stack: list[str]
    bytes: list[int]
    allocations: list[int]


class CheckedClaim(TypedDict, total=False):
    """A claim and its verdict."""

    claim: str
    articles: list[str]
    source: str
    verdict: str
    lead: str
    number: str
    condition: str
    experiment: str


class CheckedRun(TypedDict, total=False):
    """A run of the file, and its memory now."""

    name: str
    model: str
    premises: list[Premise]
    verdict: Optional[str]
    failure: Optional[str]
    comparison: Optional[Comparison]
    warnings: list[str]
    now: Locked


class CheckpointRow(TypedDict, total=False):
    """A choice of blocks, run dry."""

    name: str
    recomputed: int
    seconds: float
    peak_bytes: int
    reserved_bytes: int
    fits: bool


class Checkpoints(TypedDict, total=False):
    """The blocks that were chosen, and what other choices take."""

    budget_bytes: int
    blocks: str
    of: int
    tried: int
    rows: list[CheckpointRow]


class ChosenDevice(TypedDict, total=False):
    """The device of a snapshot that an answer is about."""

    device: int
    others: list[OtherDevice]


class ChosenInput(TypedDict, total=False):
    """An input of a step."""

    name: str
    shape: str
    type: str


# A network without weights, and what was chosen to train it.
ChosenNetwork = TypedDict(
    "ChosenNetwork",
    {
        "name": "str",
        "library": "str",
        "class": "str",
        "head": "str",
        "loss": "str",
        "dtype": "str",
        "dtype_from": "str",
        "tokens": "Optional[int]",
        "tokens_from": "str",
        "inputs": "list[ChosenInput]",
        "notes": "list[str]",
        "parameters": "int",
        "layers": "int",
        "program": "str",
    },
    total=False,
)


class Comparison(TypedDict, total=False):
    """Two runs side by side."""

    verdict: str
    figures: list[Change]
    grew: list[str]
    parts: list[Part]
    phases: list[Change]
    events_changed: bool
    settings: list[Any]


class ConvolutionBound(TypedDict, total=False):
    """What convolutions take besides on a card, where cuDNN computes them: workspaces and a part of the context. Either cuDNN named its workspaces, or they are only bounded. Bytes."""

    workspace_bytes: int
    context_bytes: int
    upper_bytes: int
    expected_bytes: Optional[int]
    cudnn_version: Optional[int]
    source: str


class Cost(TypedDict, total=False):
    """Cost of a run. Less is better, in the order of the fields."""

    failed: int
    peak_reserved: int
    driver_calls: int


class Curve(TypedDict, total=False):
    """Values over the steps of a run, for drawing."""

    title: str
    series: list[Any]
    labels: list[str]


class DataParallelFigures(TypedDict, total=False):
    """How a step is divided among ranks."""

    ranks: int
    stage: int
    examples_per_rank: int
    master_weights: bool
    gradient_as_bucket_view: bool
    formula: StatesResult


class DeviceInfo(TypedDict, total=False):
    """A device. Bytes; null if the device does not say."""

    backend: str
    index: int
    name: str
    computes: bool
    host_memory: bool
    total_bytes: Optional[int]
    free_bytes: Optional[int]
    max_segment_bytes: Optional[int]
    max_binding_bytes: Optional[int]
    dtypes: list[str]


class DeviceMemory(TypedDict, total=False):
    """Memory of a device, as its driver reports it."""

    backend: str
    name: str
    used_bytes: Optional[int]
    total_bytes: Optional[int]


class EstimatedRange(TypedDict, total=False):
    """A range. Bytes."""

    lower_bytes: int
    expected_bytes: int
    upper_bytes: int


class EventList(TypedDict, total=False):
    """A list of events, identified by its length and a hash."""

    count: int
    hash: str


class ExperimentPoint(TypedDict, total=False):
    """A point of the scan."""

    parameters: dict[str, Any]
    experiments: list[ExperimentV1]


class ExplainedAdvice(TypedDict, total=False):
    """A piece of advice."""

    what: str
    command: Optional[str]


class ExplainedFigure(TypedDict, total=False):
    """A figure of the message."""

    name: str
    bytes: int
    tolerance_bytes: int
    meaning: str


class ExplainedSum(TypedDict, total=False):
    """A relation between figures, worked out."""

    text: str
    remainder_bytes: int
    tolerance_bytes: int


class FirstFailure(TypedDict, total=False):
    """The first request that failed although it succeeded in the recorded program."""

    operation: int
    bytes: int


class Footprint(TypedDict, total=False):
    """Memory of a run, in bytes. It is the same on every machine, for one profile and one list of settings."""

    peak: Peak
    expected: Optional[int]
    held: int
    by_category: dict[str, int]
    by_phase: dict[str, int]
    events: EventList
    at_peak: dict[str, dict[str, int]]


class Fragmentation(TypedDict, total=False):
    """Reserved memory that was not used."""

    unused_bytes_at_peak: int
    unused_share_at_peak: float
    peak_operation: int
    mean_unused_share: float
    final_free_bytes: int
    final_largest_free_bytes: int


class GrowingLine(TypedDict, total=False):
    """Memory of one line that grows from step to step."""

    bytes_per_step: int
    smallest_bytes: int
    largest_bytes: int
    count: int
    where: Optional[str]
    inside: Optional[str]
    operator: Optional[str]
    holder: Optional[str]
    held_at: Optional[str]
    kind: str
    emptied_at: Optional[str]
    limit: Optional[int]


class GrowingStack(TypedDict, total=False):
    """A stack that holds ever more as steps go on."""

    bytes: int
    smallest_bytes: int
    more: int
    more_bytes: int
    steps: int
    freed_together: bool
    stack: list[str]


class HandedFile(TypedDict, total=False):
    """A file of a plan."""

    name: str
    purpose: str
    differs: list[str]
    peak_bytes: Optional[int]
    reserved_bytes: Optional[int]


class HandedOver(TypedDict, total=False):
    """Files that say a plan to other programs."""

    folder: str
    files: list[HandedFile]
    left_out: list[NotHanded]


class Heights(TypedDict, total=False):
    """Allocated and reserved bytes at one moment."""

    allocated: int
    reserved: int


class HeldBefore(TypedDict, total=False):
    """Memory that was held when a trace began. Bytes."""

    blocks: int
    bytes: int
    recorded: bool


class HeldResult(TypedDict, total=False):
    """Memory that a stack holds."""

    bytes: int
    allocations: int
    stack: list[str]


class HeldSum(TypedDict, total=False):
    """Memory that several stacks hold."""

    stacks: int
    bytes: int
    allocations: int


class HostBytes(TypedDict, total=False):
    """Memory of the host that saved tensors take."""

    copies_bytes: int
    pinned_bytes: int


class Inexact(TypedDict, total=False):
    """Something that may have changed a size."""

    what: str
    bytes: Optional[int]


class Judged(TypedDict, total=False):
    """A claim with its verdict."""

    text: str
    source: str
    verdict: str
    lead: str
    condition: str
    number: str


class LargestValue(TypedDict, total=False):
    """The largest value whose upper figure fits."""

    value: Optional[int]
    verified: bool
    perhaps: Optional[int]
    in_words: str


# Values over which the peak is a straight line: bytes = constant + slope * value.
LawPiece = TypedDict(
    "LawPiece",
    {
        "from": "int",
        "to": "int",
        "points": "int",
        "constant": "float",
        "slope": "float",
        "off_by": "float",
    },
    total=False,
)


class LawResult(TypedDict, total=False):
    """Law of the peak: requested bytes at the highest moment, by size."""

    complete: bool
    runs: int
    outline: Optional[list[StretchResult]]
    pieces: list[str]


class Leak(TypedDict, total=False):
    """Growing memory."""

    steps: int
    growth_bytes_per_step: int
    nodes_per_step: int
    sites: list[Site]
    holder: list[Link]
    cause: str
    advice: str
    out_of_memory_step: Optional[int]


class LengthOrder(TypedDict, total=False):
    """Batches in one order."""

    order: str
    batches: int
    longest: int
    longest_batch: int
    padding: float
    peak_bytes: int
    reserved_bytes: int
    fits: Optional[bool]


class LineResult(TypedDict, total=False):
    """Memory that a line of the program held for one purpose."""

    requested_bytes: int
    count: int
    where: Optional[str]
    name: str
    inside: Optional[str]
    operators: list[OperatorBytes]
    category: str
    guessed: bool
    before: bool
    callers: list[str]


class Link(TypedDict, total=False):
    """One link of the path."""

    what: str
    scope: str


class ListedClaim(TypedDict, total=False):
    """A claim that an experiment judges."""

    text: str
    source: str


class ListedExperiment(TypedDict, total=False):
    """An experiment."""

    name: str
    question: str
    claims: list[ListedClaim]
    sizes: dict[str, str]


class ListedModel(TypedDict, total=False):
    """A network."""

    name: str
    description: str


class LivesLonger(TypedDict, total=False):
    """Memory that is freed later in one recording."""

    request: RequestResult
    requests: Optional[list[int]]


class LocalPeak(TypedDict, total=False):
    """A moment at which more was allocated than some time before and after."""

    allocated_bytes: int
    phase: str
    op: str
    scope: str
    mostly: str
    mostly_bytes: int


class Locked(TypedDict, total=False):
    """A locked run."""

    flags: dict[str, Any]
    settings: dict[str, Any]
    memory: Footprint


class MeasuredContext(TypedDict, total=False):
    """What a process took on a card besides what PyTorch reserved."""

    card: str
    torch: Optional[str]
    cuda: Optional[str]
    driver: Optional[str]
    least_bytes: int
    most_bytes: int
    when: str
    source: str


class Measurement(TypedDict, total=False):
    """Figures of one setting, measured and predicted. Keys name quantities (`peak_bytes`); figures are bytes, counts or milliseconds. A quantity that the device cannot give is `null`."""

    setting: dict[str, Any]
    predicted: Optional[dict[str, int]]
    measured: Optional[dict[str, int]]
    residual: dict[str, int]


class ModuleResult(TypedDict, total=False):
    """A module. Figures include the modules inside it."""

    path: str
    parameter_bytes: int
    buffer_bytes: int
    saved_bytes: int
    output: Optional[list[int]]
    output_dtype: Optional[str]
    operators: list[OperatorResult]


class MomentResult(TypedDict, total=False):
    """A moment, and the holders of memory then. Bytes are requested bytes."""

    what: str
    entry: Optional[int]
    phase: Optional[str]
    step: Optional[int]
    ranges: list[str]
    requested_bytes: int
    by_line: list[LineResult]
    lines: int
    by_category: list[CategoryResult]
    kept_in_vain: int


class NamedRange(TypedDict, total=False):
    """A range that the program named (`record_function`, NVTX)."""

    name: str
    count: int


class Needed(TypedDict, total=False):
    """Memory of a run with enough memory."""

    allocated_bytes: int
    reserved_bytes: int


class NeedsResult(TypedDict, total=False):
    """Memory of a run, with enough memory and within a limit. Bytes."""

    allocated_bytes: int
    reserved_bytes: int
    reserved_here_bytes: Optional[int]
    missing_bytes: Optional[int]
    fits_with_least_context: Optional[bool]


class NotAsOnACard(TypedDict, total=False):
    """A way in which the library differed from a card; `docs/rehearsal-library.md` says what each event means."""

    event: str
    name: str


class NotHanded(TypedDict, total=False):
    """A file that was not written."""

    name: str
    why: str


class OnCard(TypedDict, total=False):
    """What a process takes on a card: tensors, what PyTorch reserves for them, what it takes besides. An answer is Yes if the upper figure fits, No if the lower one does not, else Perhaps. Bytes."""

    lower_bytes: int
    expected_bytes: int
    upper_bytes: int
    figures_of: str
    basis: str
    parts: list[PartOnCard]


class OperatorBytes(TypedDict, total=False):
    """Bytes that an operator requested."""

    operator: str
    requested_bytes: int


class OperatorResult(TypedDict, total=False):
    """An operator in a module."""

    name: str
    line: Optional[str]
    times: int
    saved_bytes: int


class OtherDevice(TypedDict, total=False):
    """A device of the same file that is not shown."""

    device: int
    peak_reserved: int
    failed: int


class OutOfMemoryResult(TypedDict, total=False):
    """Why a run ran out of memory, and how much it lacks. A run that was refused before its first allocation has nulls."""

    message: str
    verdict: Optional[str]
    needs: Optional[Needed]
    missing_bytes: Optional[int]
    requested_bytes: int
    block_bytes: int
    segment_bytes: int
    free_bytes: Optional[int]
    total_bytes: Optional[int]
    allowed_bytes: Optional[int]
    released_bytes: int
    largest_fit_bytes: int
    rings: RingBytes
    by_category: dict[str, int]
    top_scopes: list[TopScope]


class OverheadPart(TypedDict, total=False):
    """A part of the overheads."""

    name: str
    bytes: int


class OverheadsResult(TypedDict, total=False):
    """What the driver's figure holds besides segments."""

    parts: list[OverheadPart]
    unexplained_bytes: int


class Part(TypedDict, total=False):
    """A part of the peak, before and now."""

    category: str
    name: str
    baseline: int
    now: int


class PartOnCard(TypedDict, total=False):
    """A part of what a process takes. Bytes."""

    name: str
    lower_bytes: int
    expected_bytes: int
    upper_bytes: int
    source: str


class Peak(TypedDict, total=False):
    """The peak."""

    allocated: int
    reserved: int
    op: str
    scope: str
    phase: str


class PeakOfTrace(TypedDict, total=False):
    """The peak of a trace."""

    event: Optional[int]
    requested_bytes: int
    by_stack: list[HeldResult]
    in_all: HeldSum
    made_by: list[str]


class PeakResult(TypedDict, total=False):
    """The moment at which most was allocated."""

    bytes: int
    label: Optional[str]
    op: str
    scope: str
    phase: str
    requested_bytes: int
    reserved_bytes: int
    by_category: dict[str, int]
    by_scope: list[ScopeBytes]
    host: Optional[HostBytes]


class PeakShares(TypedDict, total=False):
    """Requested bytes at the peak, by purpose. `other`: what the script itself holds, and whatever no object of PyTorch names."""

    parameter: int
    gradient: int
    optimizer: int
    buffer: int
    activation: int
    input: int
    temporary: int
    workspace: int
    other: int


class PlaceResult(TypedDict, total=False):
    """Who holds more or less at the peak, or asks more or less often."""

    by: str
    at_peak: list[int]
    requests: list[int]


class PlanResult(TypedDict, total=False):
    """Properties of a plan, proven independently of the algorithm that made it."""

    bytes: int
    packing: str
    bound_bytes: int
    bound_operation: int
    bound_allocations: int
    optimal: bool
    fits: bool
    departures: int


class PlannedResult(TypedDict, total=False):
    """A plan, run dry."""

    micro_batch: int
    accumulate: int
    seconds: float
    fits: Optional[bool]
    lower_bytes: int
    expected_bytes: int
    upper_bytes: int
    figures_of: str
    basis: str
    parts: list[PartOnCard]
    changes: Try


class Point(TypedDict, total=False):
    """A point."""

    parameters: dict[str, Any]
    run: TrainV1
    predicted: Optional[Predicted]
    on_card: Optional[PointOnCard]


class PointOnCard(TypedDict, total=False):
    """What a process takes on the card at a point. Bytes."""

    lower_bytes: int
    expected_bytes: int
    upper_bytes: int
    fits: Optional[bool]
    missing_bytes: Optional[int]
    basis: str


class PolicyResult(TypedDict, total=False):
    """Figures of a policy that replayed a recording."""

    policy: str
    peak: Heights
    final: Heights
    fragmentation: Fragmentation
    driver_calls: Calls
    retries: int
    out_of_memory: int
    newly_failed: int
    first_failure: Optional[FirstFailure]
    last_oom_message: Optional[str]
    ns_per_operation: float
    sample_columns: list[str]
    samples: list[list[int]]
    plan: Optional[PlanResult]


class Predicted(TypedDict, total=False):
    """Memory of a dry run, with enough memory."""

    peak_bytes: int
    reserved_bytes: int


class PredictedPeaks(TypedDict, total=False):
    """Peaks that a prediction or a rehearsal named. Bytes."""

    file: str
    allocated: int
    reserved: int


class Premise(TypedDict, total=False):
    """A premise: the type, the tokens or the batch, with its source."""

    name: str
    value: str
    source: str


class RankResult(TypedDict, total=False):
    """One rank. Bytes."""

    rank: int
    parameters_owned: int
    padding: int
    units: int
    model_states: StatesResult
    gathered_bytes: int
    bucket_bytes: int
    sent_bytes_per_step: SentBytes
    peak: PeakResult
    by_category: dict[str, int]
    rings: RingBytes
    steps: list[list[Any]]


class RehearsalPoint(TypedDict, total=False):
    """A point."""

    values: list[str]
    searched: bool
    rehearsal: RehearsalV1


class RehearsedGpu(TypedDict, total=False):
    """The card."""

    name: str
    count: int
    total_bytes: int
    context_bytes: int
    capability: str


class RehearsedGrowth(TypedDict, total=False):
    """Growth of memory from step to step."""

    trend: str
    steps: int
    bytes_per_step: int
    full_at_step: Optional[int]
    lines: list[GrowingLine]
    seldom: list[SeldomLine]


class RehearsedNeeds(TypedDict, total=False):
    """What a script takes with enough memory. Bytes."""

    total_bytes: int
    fits: Optional[bool]
    stopped: str
    steps: int
    peak_allocated: int
    peak_reserved: int
    missing: int
    at_peak: list[AtPeak]
    by_category: Optional[PeakShares]
    basis: Optional[str]


class RehearsedOom(TypedDict, total=False):
    """The first time that memory ran out. Bytes."""

    requested: int
    allocated: int
    reserved: int
    where: str
    steps: int
    free_on_device: int
    free_in_reserved: int
    largest_free: Optional[int]
    verdict: str


class RehearsedPhase(TypedDict, total=False):
    """The most that one phase of a script took. Bytes."""

    name: str
    peak_allocated: int
    peak_reserved: int
    fits: Optional[bool]
    where: Optional[str]
    operator: Optional[str]


class RehearsedProtection(TypedDict, total=False):
    """How the user's files were protected from the script."""

    way: str
    lacks: list[str]


class RehearsedRank(TypedDict, total=False):
    """A process on a card. Bytes."""

    rank: int
    gpu: int
    pid: int
    steps: int
    peak_allocated: int
    peak_reserved: int
    ooms: int
    oom: Optional[RehearsedOom]
    at_peak: list[AtPeak]
    by_category: Optional[PeakShares]
    growth: Optional[RehearsedGrowth]
    host_locked: int
    host_managed: int


class RehearsedWorld(TypedDict, total=False):
    """Some ranks of many."""

    size: int
    started: list[int]


class RequestResult(TypedDict, total=False):
    """A request for memory."""

    bytes: int
    by: str
    phase: Optional[str]


class RequestsDiff(TypedDict, total=False):
    """How the requests of two recordings differ. The first of each pair is the earlier one. Bytes."""

    equal: int
    asked: Optional[list[Optional[RequestResult]]]
    lives_longer: Optional[LivesLonger]
    requests: list[int]
    peak_bytes: list[int]
    reserved_bytes: list[int]
    places: list[PlaceResult]


class RingBytes(TypedDict, total=False):
    """Five figures, each at least as large as the previous one, in bytes."""

    requested: int
    allocated: int
    active: int
    reserved: int
    driver: Optional[int]


class RoofResult(TypedDict, total=False):
    """Highest measured speeds of a device."""

    copy_gb_per_s: float
    gemm_gflop_per_s: Optional[float]


# A run: network, training, device, memory profile, allocator, and how it is spread.
RunSpec = TypedDict(
    "RunSpec",
    {
        "model": "Optional[str]",
        "model-file": "Optional[str]",
        "adversary": "Optional[str]",
        "layers": "Optional[int]",
        "width": "Optional[int]",
        "heads": "Optional[int]",
        "sequence": "Optional[int]",
        "vocabulary": "Optional[int]",
        "features": "Optional[int]",
        "image": "Optional[int]",
        "classes": "Optional[int]",
        "dropout": "Optional[float]",
        "attention": "Optional[str]",
        "checkpoint": "Optional[str]",
        "checkpoint-save": "Optional[str]",
        "head": "Optional[str]",
        "choices": "Optional[int]",
        "transformers": "Optional[str]",
        "keep": "Optional[str]",
        "attention-mask": "Optional[str]",
        "logits-to-keep": "Optional[int]",
        "packing": "Optional[int]",
        "built-on-device": "bool",
        "load-in-4bit": "bool",
        "load-in-8bit": "bool",
        "double-quant": "bool",
        "loss": "Optional[str]",
        "liger": "bool",
        "loop": "Optional[str]",
        "tied": "bool",
        "keep-intermediate": "bool",
        "batch": "Optional[int]",
        "steps": "Optional[int]",
        "data": "Optional[str]",
        "optimizer": "Optional[str]",
        "optimizer-impl": "Optional[str]",
        "freeze": "Optional[str]",
        "lora": "Optional[int]",
        "lora-target": "Optional[str]",
        "lora-dropout": "Optional[float]",
        "modules-to-save": "Optional[str]",
        "dora": "bool",
        "rslora": "bool",
        "step-in-backward": "bool",
        "lr": "Optional[float]",
        "weight-decay": "Optional[float]",
        "nesterov": "bool",
        "amsgrad": "bool",
        "maximize": "bool",
        "capturable": "bool",
        "precision": "Optional[str]",
        "accumulate": "Optional[int]",
        "zero-grad": "Optional[str]",
        "schedule": "Optional[str]",
        "clip-grad-norm": "Optional[float]",
        "seed": "Optional[int]",
        "batches": "Optional[str]",
        "lengths": "Optional[str]",
        "eval-every": "Optional[int]",
        "eval-batch": "Optional[int]",
        "eval-steps": "Optional[int]",
        "eval-keep": "Optional[str]",
        "ema": "Optional[str]",
        "hold": "Optional[str]",
        "channels-last": "bool",
        "save-on-cpu": "Optional[str]",
        "like": "Optional[str]",
        "cudnn-workspace": "Optional[int]",
        "env": "Optional[list[str]]",
        "multiprocessors": "Optional[int]",
        "memory-limit": "Optional[int]",
        "memory-fraction": "Optional[float]",
        "alloc-conf": "Optional[str]",
        "allocator": "Optional[str]",
        "gpu": "Optional[str]",
        "backend": "Optional[str]",
        "device": "Optional[int]",
        "cuda-graph": "Optional[bool]",
        "tf32": "Optional[str]",
        "devices": "Optional[str]",
        "micro-batches": "Optional[int]",
        "cut": "Optional[str]",
        "pipeline-schedule": "Optional[str]",
        "data-parallel": "Optional[int]",
        "zero": "Optional[int]",
        "gradient-as-bucket-view": "Optional[bool]",
        "sync-each": "Optional[bool]",
        "load": "Optional[str]",
        "resume": "Optional[str]",
    },
    total=False,
)


class RunStatus(TypedDict, total=False):
    """Status of a running training."""

    schema: str
    pid: int
    model: str
    device: DeviceInfo
    started_ms: int
    updated_ms: int
    step: int
    steps: int
    loss: Optional[float]
    rings: RingBytes
    by_category: dict[str, int]
    peak_bytes: int
    leak: Optional[Leak]


class ScopeBytes(TypedDict, total=False):
    """Bytes that a module held."""

    scope: str
    by_category: dict[str, int]


class SearchedOperations(TypedDict, total=False):
    """Operations that a search saw, and those that were held out."""

    searched: int
    held_out: int


class SeenDevice(TypedDict, total=False):
    """A device, or the reason why it is absent; then its properties are null."""

    backend: str
    index: Optional[int]
    name: Optional[str]
    computes: Optional[bool]
    total_bytes: Optional[int]
    free_bytes: Optional[int]
    max_segment_bytes: Optional[int]
    max_binding_bytes: Optional[int]
    dtypes: list[str]
    kind: Optional[str]
    features: list[str]
    available: bool
    reason: Optional[str]


class SegmentResult(TypedDict, total=False):
    """A segment."""

    address: int
    bytes: int
    allocated: int
    active: int
    requested: int
    largest_free: int
    blocks: int
    stream: int
    pool: list[Any]
    small: bool
    expandable: bool


class SeldomLine(TypedDict, total=False):
    """Line of the script that runs only every so many steps."""

    where: str
    every: int
    of: str
    loop_at: Optional[str]


class SelfCheck(TypedDict, total=False):
    """Result of comparing a replay under the recorded settings with the recording."""

    exact: bool
    reserved_equal: bool
    segments: int
    equal_segments: int
    allocations: int
    placed: int
    peak_reserved: Both
    final_reserved: Both
    outside: int
    failed: Both
    allocations_before: int
    resumed: bool


class SentBytes(TypedDict, total=False):
    """Bytes that a rank sends in a step."""

    all_reduce: int
    reduce_scatter: int
    all_gather: int
    total: int


class Setting(TypedDict, total=False):
    """Settings, and the cost of the run under them."""

    alloc_conf: str
    cost: Cost


class Shard(TypedDict, total=False):
    """The part of many runs that a result is: part I of N has the runs I, I + N, I + 2 N … of the whole."""

    index: int
    count: int
    asked: dict[str, Any]
    whole: list[str]


class ShortAnswer(TypedDict, total=False):
    """The answer to an experiment's question, in short."""

    word: str
    figures: list[str]


class Site(TypedDict, total=False):
    """Place where memory grows."""

    op: str
    scope: str
    phase: str
    category: str
    bytes_per_step: int
    allocations: int


class SkippedKernel(TypedDict, total=False):
    """A measurement that a device could not do."""

    name: str
    reason: str


class SnapshotOom(TypedDict, total=False):
    """The last request that failed. Bytes."""

    entry: int
    failed: int
    later_allocations: int
    requested: int
    where: Optional[str]
    held: int
    reserved: int
    free_on_device: int
    free_in_reserved: int
    verdict: str
    missing: int
    what_if: Optional[WhatIfResult]


class StageResult(TypedDict, total=False):
    """One device of a network that is split. Bytes."""

    name: str
    device: DeviceInfo
    pieces: list[int]
    modules: Optional[str]
    parameters: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    in_flight: int
    sent_bytes: int
    received_bytes: int
    peak: PeakResult
    by_category: dict[str, int]
    rings: RingBytes
    steps: list[list[Any]]


class StatesResult(TypedDict, total=False):
    """Model states, in bytes."""

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    total_bytes: int


# A straight stretch of the law.
StretchResult = TypedDict(
    "StretchResult",
    {
        "from": "int",
        "to": "int",
        "bytes": "int",
        "slope": "int",
        "off_bytes": "int",
        "highest_when": "str",
    },
    total=False,
)


class TechniqueResult(TypedDict, total=False):
    """A technique, and the memory of the run with it; null, with the reason, if the network cannot have it. Bytes."""

    name: str
    peak_bytes: Optional[int]
    reserved_bytes: Optional[int]
    reserved_here_bytes: Optional[int]
    fits: Optional[bool]
    missing_bytes: Optional[int]
    fits_with_least_context: Optional[bool]
    reason: Optional[str]
    warnings: list[str]


class TopScope(TypedDict, total=False):
    """All bytes that a module held."""

    scope: str
    bytes: int


class TotalsResult(TypedDict, total=False):
    """The sums of a device. Bytes."""

    segments: int
    reserved: int
    allocated: int
    active: int
    requested: int
    free: int
    free_in_split_segments: int
    largest_free: int
    fragmentation: float


class TraceResult(TypedDict, total=False):
    """A recording."""

    name: str
    format: str
    operations: int
    allocations: int


class TriedSize(TypedDict, total=False):
    """A size that was run under the budget."""

    size: int
    fits: bool
    peak_allocated_bytes: Optional[int]
    peak_reserved_bytes: Optional[int]
    retries: Optional[int]
    law_requested_bytes: Optional[int]
    needs_reserved_bytes: Optional[int]
    missing_bytes: Optional[int]
    out_of_memory_bytes: Optional[int]


class Tries(TypedDict, total=False):
    """Changes to a run, the best first."""

    order: str
    entries: list[Try]
    search: str
    not_here: str


class Try(TypedDict, total=False):
    """A change. It has no figures if nothing was run for it."""

    change: str
    script: str
    flags: str
    command: Optional[str]
    checked: bool
    peak_bytes: Optional[int]
    reserved_bytes: Optional[int]
    left_bytes: Optional[int]


class UnknownRead(TypedDict, total=False):
    """A read of an unknown value, or an assumption about it."""

    rank: int
    event: str
    where: str
    inside: str
    operator: str
    kind: str
    bytes: Optional[int]
    answer: Optional[str]
    count: int


class Watched(TypedDict, total=False):
    """A process that trains, as the watch inside it tells. Bytes."""

    schema: str
    pid: int
    rank: Optional[int]
    script: str
    torch: str
    card: Optional[str]
    device: int
    started_ms: int
    updated_ms: int
    steps: int
    step_seconds: Optional[float]
    allocated: int
    reserved: int
    peak_allocated: int
    peak_step: int
    peak_reserved: int
    room: Optional[int]
    retries: int
    by_category: dict[str, int]
    growth: Optional[WatchedGrowth]
    out_of_memory: Optional[WatchedOom]
    recorded_steps: int
    last_recorded_step: int
    own_share: Optional[float]
    problem: Optional[str]
    ended: bool
    folder: str
    snapshot: Optional[str]
    snapshot_step: int
    note: Optional[str]


class WatchedGrowth(TypedDict, total=False):
    """Growth of the memory at the ends of steps."""

    bytes_per_step: int
    since_step: int
    runs_out_at_step: Optional[int]


class WatchedOom(TypedDict, total=False):
    """A request that failed."""

    step: int
    requested: int
    free: int
    allocated: int
    reserved: int
    count: int
    recorded: bool
    line: Optional[str]


class WhatIfResult(TypedDict, total=False):
    """Memory of a run under other allocator settings, by replay of its events. Bytes."""

    self_check: SelfCheck
    capacity_bytes: Optional[int]
    recorded: Optional[Setting]
    tried: list[Setting]
