"""What the launcher and the processes tell each other, as types.

Made by `cargo xtask json` from lab/src/rehearse/contract.rs and answers.rs; a test compares. A process writes every key.
"""

from typing import Any, List, Optional, Sequence, TypedDict


class Settled(TypedDict):
    """How long a run waits for flat memory."""

    # Least number of steps.
    least: int
    # Greatest number of steps.
    most: int
    # Seconds after the first step.
    seconds: int


class World(TypedDict):
    """Ranks of which some are started."""

    # Number of all ranks.
    size: int
    # Numbers of the started ones.
    started: List[int]
    # The folder through which they exchange data.
    meet: str
    # Names of the environment variables that torchrun sets for a rank.
    variables: List[str]


class Settings(TypedDict):
    """Settings for each Python of the run."""

    # The folder for the files of the processes.
    answers: str
    # The script ends after this number of an optimizer's steps.
    steps: Optional[int]
    # The script ends after the step by which all of these were seen.
    until: List[str]
    # The script ends as soon as memory is flat, within these limits.
    settled: Optional[Settled]
    # True if allocations are recorded with their lines.
    stacks: bool
    # True if each phase of the run is told with its own peak.
    phases: bool
    # True if small tensors are computed.
    values: bool
    # The file with configurations that the program knows, by names on the hub in lower case.
    known: str
    # Words of a made-up text, where data that is not there is made up.
    make_data: Optional[int]
    # Maximum number of events that PyTorch keeps.
    entries: int
    # Set if only some ranks of many are started.
    world: Optional[World]
    # Number of the signal that asks for the answer.
    signal: int


class Card(TypedDict):
    """Card that a process used. Sizes are in bytes."""

    index: int
    peak_allocated: int
    peak_reserved: int
    ooms: int
    # Number of allocations until the answer was written.
    made: int


class Host(TypedDict):
    """The most memory of the host that cards could read, in bytes: page-locked (pinned or registered), and managed."""

    locked: int
    managed: int


class Phase(TypedDict):
    """Most that one phase of the run took on a card. Sizes are in bytes."""

    # load, train, evaluate, generate, save, resume.
    name: str
    card: int
    peak_allocated: int
    peak_reserved: int
    # Numbers of allocations on the card, between which the peak was.
    since: int
    until: int


class Seen(TypedDict):
    """Uses of the network, besides steps, that were seen."""

    evaluation: bool
    saving: bool
    generation: bool


class Held(TypedDict):
    """Addresses of the tensors that an optimizer works on, after one of its steps."""

    time_us: int
    parameter: List[int]
    gradient: List[int]
    optimizer: List[int]
    buffer: List[int]


class Oom(TypedDict):
    """First failed allocation. Sizes are in bytes."""

    card: int
    requested: int
    free: int
    allocated: int
    reserved: int
    count: int
    where: str
    # Number of steps done until then.
    step: int


class Lines(TypedDict):
    """Starts of nodes of the backward pass, and the lines of the forward pass that made them."""

    # Frames (file, line, function), innermost first.
    places: List[List[Sequence[Any]]]
    # Card, number of allocations on it until then, place, name of the node.
    marks: List[Sequence[Any]]


class Period(TypedDict):
    """Line of the script that runs only every so many steps."""

    where: str
    every: int
    # What is counted: step; turn of a loop of which each makes many steps; epoch, where that loop is not known.
    of: str
    # That loop's line.
    loop: Optional[str]
    # True if the steps show whether it adds to memory.
    settled: bool


class Holder(TypedDict):
    """What holds some blocks, as Python's garbage collector knows it."""

    card: int
    # Addresses of some of the blocks.
    addresses: List[int]
    # True if a collection of garbage freed all of these.
    cycle: bool
    # A few words; None if no holder was found.
    holder: Optional[str]
    # Line at which the program puts something there.
    where: Optional[str]
    # True if the holder may fill: it replaces entries, its length is limited, or the program empties it.
    fills: bool
    # Line at which the program empties it or limits its length.
    emptied: Optional[str]
    # Number of entries at most.
    limit: Optional[int]
    # Number of entries.
    length: Optional[int]


class Growth(TypedDict):
    """Marks of the ends of steps, and who holds what grew."""

    # True if the last step requested what the one before it did, and left the blocks of an earlier one that did.
    flat: bool
    # For each of the last steps: cards, with the number of allocations and of frees until its end.
    marks: List[List[Sequence[Any]]]
    holders: List[Holder]


class Exception(TypedDict):
    """Exception that ended a process."""

    type: str
    message: str
    out_of_memory: bool


class Compiled(TypedDict):
    """Numbers of compiled graphs."""

    # Number of graphs that were compiled because no cache had them.
    new: int


class Place(TypedDict):
    """Place in the script that read a value which is unknown, or assumed."""

    event: str
    where: str
    inside: str
    operator: str
    kind: str
    bytes: Optional[int]
    answer: Optional[str]
    count: int


class Values(TypedDict):
    """Report of the layer that computes small tensors."""

    places: List[Place]
    beyond: int


class Answer(TypedDict):
    """Answer of one process. Any field may be missing or wrong, because the file comes from outside."""

    pid: int
    rank: int
    world: int
    # running, or the reason why the process ended: steps, seen, exit, asked, terminated.
    why: str
    steps: int
    torch: str
    cards: List[Card]
    seen: Seen
    # True if transformers' code for generating texts is loaded.
    can_generate: bool
    held: List[Held]
    # Start and end of each backward pass, in microseconds. A pass that did not end has no end.
    backward: List[Sequence[Any]]
    # Addresses to which batches were moved from the host, each with its time in microseconds.
    inputs: List[Sequence[Any]]
    oom: Optional[Oom]
    exception: Optional[Exception]
    compiled: Compiled
    values: Optional[Values]
    # Names of withheld uploads and messages.
    withheld: List[str]
    # Maximum number of events that the snapshot may have.
    entries: int
    growth: Growth
    # Lines that run only every so many steps.
    periods: List[Period]
    lines: Lines
    # Cards, and addresses of workspaces that PyTorch keeps there for libraries.
    workspaces: List[Sequence[Any]]
    host: Host
    # Phases in the order in which they began, if they were asked for.
    phases: List[Phase]


class Started(TypedDict):
    """Note that a process writes when it has imported PyTorch."""

    torch: str
    # CUDA release that this PyTorch is built for; None if it is built without CUDA.
    cuda: Optional[str]
