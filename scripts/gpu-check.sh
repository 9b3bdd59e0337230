#!/bin/sh
# Checks a build on a machine with an NVIDIA GPU: no Rust, no network, nothing of the source tree.
#
# On a machine that builds:   scripts/gpu-check.sh pack FOLDER [peer_torch.py [RECORDED]]
# On the machine with a GPU:  FOLDER/gpu-check.sh [devices|train|endurance|conformance|wgpu|opencl|kernels|torch_kernels|training|experiments|torch|recorded]...
#
# Without names every part runs. Each ends within LIMIT seconds (600), or is ended. A part whose binary, library or device
# is missing is skipped, with a word. RESULTS (gpu-check-results) gets one JSON file and one log for each part, and
# results.json, all of them as one list. RECORDED is a folder with recorded_scripts.py and, in scripts/, what PyTorch's memory was when they
# were recorded, which PyTorch on the card is compared with, row by row. LIBRARIES names folders with libnvrtc, libcublasLt and libcudnn where they are in no usual place.
set -u

here=$(cd "$(dirname "$0")" && pwd)
results=${RESULTS:-gpu-check-results}
limit=${LIMIT:-600}
parts="devices train endurance conformance wgpu opencl kernels torch_kernels training experiments torch recorded"
# What can be carried to a machine at once.
most_bytes=$((64 << 20))

# ---- on the machine that builds ----

# Of cargo's messages, where the program of this package and name is.
built() {
    path=$(grep "/$1#" "$folder/messages" | grep "\"name\":\"$2\"" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -n "$path" ] || echo "cargo does not say where $2 of $1 is" >&2
    echo "$path"
}

# Builds, and keeps what cargo says.
build() {
    cargo "$@" --profile "${PROFILE:-dist}" --workspace --message-format=json >>"$folder/messages" || exit 1
}

take() {
    cp "$1" "$bin/$2" && strip "$bin/$2" || exit 1
}

# Builds what is needed and packs it beside this script; with PROFILE=dev quickly, for a look at the packing. The whole workspace at once: other features of a library would
# be another library.
pack() {
    folder=$1
    bin=$folder/bin
    rm -rf "$bin" && mkdir -p "$bin" && : >"$folder/messages" || exit 1
    cd "$(dirname "$here")" || exit 1
    build build --bin vramlab --bin peer-vramlab
    build test --no-run --test conformance
    build bench --no-run --bench kernels --bench training
    take "$(built cli vramlab)" vramlab
    take "$(built benches peer-vramlab)" peer-vramlab
    take "$(built backend-cuda conformance)" conformance-cuda
    take "$(built backend-wgpu conformance)" conformance-wgpu
    take "$(built backend-opencl conformance)" conformance-opencl
    take "$(built benches kernels)" bench-kernels
    take "$(built benches training)" bench-training
    cp "$here/torch-kernels.py" "$bin/" || exit 1
    [ -z "${2:-}" ] || cp "$2" "$bin/peer_torch.py" || exit 1
    if [ -n "${3:-}" ]; then
        mkdir "$bin/recorded" && cp -r "$3/recorded_scripts.py" "$3/scripts" "$bin/recorded/" || exit 1
    fi
    cp "$here/gpu-check.sh" "$folder/" || exit 1
    (cd "$bin" && find . -maxdepth 1 -type f -exec wc -c {} +) || exit 1
    tar -C "$folder" -czf "$folder/bin.tar.gz" bin && rm -r "$bin" "$folder/messages" || exit 1
    bytes=$(cat "$folder/bin.tar.gz" "$folder/gpu-check.sh" | wc -c)
    echo "packed into $folder: $bytes bytes, compressed"
    [ "$bytes" -le "$most_bytes" ] || { echo "more than the $most_bytes bytes that can be carried" >&2; exit 1; }
}

# ---- on the machine with a GPU ----

# A text as a JSON string.
quoted() {
    printf '"%s"' "$(printf '%s' "$1" | tr '\n\t\r' '   ' | sed 's/\\/\\\\/g; s/"/\\"/g' | tr -d '\000-\037')"
}

skip() {
    echo "$1: skipped, $2"
    printf '{"part": "%s", "ran": false, "reason": %s}\n' "$1" "$(quoted "$2")" >"$results/$1.json"
}

# Runs a command as (a step of) a part: its name, then the command. Its output is kept beside the JSON; where it is JSON
# itself (the file NAME.out.json), that is part of it.
run() {
    part=$1
    shift
    echo "$part: $*"
    begin=$(date +%s)
    timeout "$limit" "$@" >"$results/$part.log" 2>&1
    code=$?
    end=$(date +%s)
    ended=
    [ $code -ne 124 ] || ended=", ended after $limit s"
    [ $code -eq 0 ] || failed="$failed $part"
    outcome=null
    [ ! -s "$results/$part.out.json" ] || outcome=$(cat "$results/$part.out.json")
    printf '{"part": "%s", "ran": true, "command": %s, "exit_code": %d, "seconds": %d, "date": "%s", "gpu": %s, "last_words": %s, "log": "%s.log", "outcome": %s}\n' \
        "$part" "$(quoted "$*")" $code $((end - begin)) "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(quoted "$gpu")" \
        "$(quoted "$(tail -n 3 "$results/$part.log")")" "$part" "$outcome" >"$results/$part.json"
    echo "$part: exit code $code after $((end - begin)) s$ended"
    tail -n 3 "$results/$part.log" | sed 's/^/    /'
    return $code
}

# Whether a program came along.
has() {
    [ -x "$bin/$2" ] && return
    skip "$1" "no $2 came along"
    return 1
}

# Whether the CUDA backend opens its device; if not, what it says.
has_cuda() {
    has "$1" vramlab || return 1
    reason=$("$bin/vramlab" -q train --model mlp --batch 1 --steps 1 --backend cuda 2>&1 >/dev/null) && return
    skip "$1" "${reason:-the CUDA backend does not start}"
    return 1
}

check_devices() {
    has devices vramlab || return
    run devices "$bin/vramlab" devices --json "$results/devices.out.json"
}

# One network, with and without graphs, and a second time: the losses have to be the same. With convolutions in TF32, and with
# the library's first algorithms for products instead of the fastest, nearly so.
check_train() {
    has_cuda train || return
    losses() { tr -d ' \n' <"$results/$1.out.json" | sed 's/.*"losses":\(\[[^]]*\]\).*/\1/'; }
    are_near() {
        near="import sys; a, b = map(eval, sys.argv[1:]); sys.exit(any(abs(x - y) > 0.01 * abs(x) for x, y in zip(a, b)))"
        python3 -c "$near" "$(losses "$1")" "$(losses "$2")" && return
        echo "$2: losses are not nearly those of $1"
        failed="$failed $2-losses"
    }
    for model in mlp gpt; do
        flags="--model $model --backend cuda --steps 30"
        # shellcheck disable=SC2086 # flags are words
        run "train-$model" "$bin/vramlab" train $flags --json "$results/train-$model.out.json" || continue
        # shellcheck disable=SC2086
        run "train-$model-again" "$bin/vramlab" train $flags --json "$results/train-$model-again.out.json" || continue
        # shellcheck disable=SC2086
        run "train-$model-graph" "$bin/vramlab" train $flags --cuda-graph --json "$results/train-$model-graph.out.json" || continue
        # shellcheck disable=SC2086
        run "train-$model-first" env VRAMLAB_CUBLASLT=first "$bin/vramlab" train $flags --json "$results/train-$model-first.out.json" || continue
        for other in again graph; do
            [ "$(losses "train-$model")" = "$(losses "train-$model-$other")" ] && continue
            echo "train-$model-$other: losses differ"
            failed="$failed train-$model-$other-losses"
        done
        are_near "train-$model" "train-$model-first"
    done
    flags="--model larger-conv --backend cuda --steps 30"
    # shellcheck disable=SC2086
    run train-conv "$bin/vramlab" train $flags --json "$results/train-conv.out.json" || return
    # shellcheck disable=SC2086
    run train-conv-tf32 "$bin/vramlab" train $flags --tf32 conv --json "$results/train-conv-tf32.out.json" || return
    # By cuDNN alone, and by the own kernels alone.
    # shellcheck disable=SC2086
    run train-conv-cudnn env VRAMLAB_CUDNN=first "$bin/vramlab" train $flags --json "$results/train-conv-cudnn.out.json" || return
    # shellcheck disable=SC2086
    run train-conv-own env VRAMLAB_CUDNN=0 "$bin/vramlab" train $flags --json "$results/train-conv-own.out.json" || return
    # shellcheck disable=SC2086
    run train-conv-graph "$bin/vramlab" train $flags --cuda-graph --json "$results/train-conv-graph.out.json" || return
    [ "$(losses train-conv)" != "$(losses train-conv-tf32)" ] || { echo "train-conv: TF32 changes nothing"; failed="$failed train-conv-tf32-losses"; }
    are_near train-conv train-conv-tf32
    are_near train-conv train-conv-cudnn
    are_near train-conv train-conv-own
    [ "$(losses train-conv)" = "$(losses train-conv-graph)" ] || { echo "train-conv-graph: losses differ"; failed="$failed train-conv-graph-losses"; }
}

# Ten thousand steps: after the third nothing is asked of the driver any more.
check_endurance() {
    has_cuda endurance || return
    run endurance-train "$bin/vramlab" train --model simple-cnn --backend cuda --steps 10000 --json "$results/endurance-train.out.json" || return
    cat >"$results/endurance.py" <<'PYTHON'
import json, sys

run = json.load(open(sys.argv[1]))
columns = run["step_columns"]
later = [row for row in run["steps"] if row[0].startswith("s") and int(row[0][1:].split(".")[0]) >= 3]
figures = {name: sorted({row[columns.index(name)] for row in later}) for name in ("segments", "reserved", "max_reserved")}
print(f"{len(run['losses'])} steps, {run['ms_per_step_median']:.3f} ms each; from the fourth on {figures}")
sys.exit(len(run["losses"]) != 10000 or any(len(values) != 1 for values in figures.values()))
PYTHON
    run endurance python3 "$results/endurance.py" "$results/endurance-train.out.json"
}

check_conformance() {
    has conformance conformance-cuda && has_cuda conformance || return
    run conformance env REQUIRE_DEVICE=cuda "$bin/conformance-cuda" --quiet
    # The own kernels, which the libraries hide; and cuDNN where own kernels are faster and hide it.
    run conformance-cudnn env REQUIRE_DEVICE=cuda VRAMLAB_CUDNN=first "$bin/conformance-cuda" --quiet conv2d
    run conformance-cudnn-attention env REQUIRE_DEVICE=cuda VRAMLAB_CUDNN=first "$bin/conformance-cuda" --quiet attention
    run conformance-own-matmul env REQUIRE_DEVICE=cuda VRAMLAB_CUBLASLT=0 "$bin/conformance-cuda" --quiet matmul
    run conformance-own-conv env REQUIRE_DEVICE=cuda VRAMLAB_CUDNN=0 "$bin/conformance-cuda" --quiet conv2d
    run conformance-own-attention env REQUIRE_DEVICE=cuda VRAMLAB_CUDNN=0 "$bin/conformance-cuda" --quiet attention
}

# The same card through Vulkan.
check_wgpu() {
    has wgpu conformance-wgpu || return
    case $("$bin/vramlab" -q devices --json - 2>/dev/null) in
        *'"backend":"wgpu"'*'"kind":"discrete"'*) ;;
        *) skip wgpu "no discrete GPU that Vulkan knows"; return ;;
    esac
    run wgpu env REQUIRE_DEVICE=wgpu "$bin/conformance-wgpu" --quiet
}

# The same card through its driver for OpenCL: kernels that are correct and slow.
check_opencl() {
    has opencl conformance-opencl || return
    case $("$bin/vramlab" -q devices --json - 2>/dev/null) in
        *'"backend":"opencl","index":0'*) ;;
        *) skip opencl "no device that OpenCL knows"; return ;;
    esac
    run opencl env REQUIRE_DEVICE=opencl "$bin/conformance-opencl" --quiet
}

check_kernels() {
    has kernels bench-kernels && has_cuda kernels || return
    run kernels env CRITERION_HOME="$results/criterion" "$bin/bench-kernels" --bench --backend cuda --noplot
    run kernels-own-conv env VRAMLAB_CUDNN=0 CRITERION_HOME="$results/criterion-own" "$bin/bench-kernels" --bench --backend cuda --noplot conv
    run kernels-own-attention env VRAMLAB_CUDNN=0 CRITERION_HOME="$results/criterion-own" "$bin/bench-kernels" --bench --backend cuda --noplot attention
}

# PyTorch's kernels at the sizes of the part before, and the ratio of each.
check_torch_kernels() {
    [ -d "$results/criterion" ] || { skip torch_kernels "the part kernels has not run"; return; }
    sees_gpu || { skip torch_kernels "no PyTorch that sees a GPU here"; return; }
    run torch_kernels env LD_LIBRARY_PATH="$own_path" python3 "$bin/torch-kernels.py" "$results/criterion" "$results/torch_kernels.out.json"
    cat "$results/torch_kernels.log"
}

check_training() {
    has training bench-training && has_cuda training || return
    run training "$bin/bench-training" --bench --backend cuda --noplot
}

check_experiments() {
    has_cuda experiments || return
    run experiments "$bin/vramlab" run all --backend cuda --json "$results/experiments.out.json"
}

# Whether there is a PyTorch with a GPU, whose libraries are its own, not those that were looked for above.
sees_gpu() {
    LD_LIBRARY_PATH=$own_path python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null
}

# The workloads of the comparison, with PyTorch and with vramlab, one after the other; then both medians and their ratio.
check_torch() {
    has torch peer-vramlab && has_cuda torch || return
    [ -f "$bin/peer_torch.py" ] || { skip torch "no peer_torch.py came along: pack FOLDER peer_torch.py"; return; }
    sees_gpu || { skip torch "no PyTorch that sees a GPU here"; return; }
    run torch-ours "$bin/peer-vramlab" --device cuda --seconds 3 all || return
    run torch-theirs env LD_LIBRARY_PATH="$own_path" python3 "$bin/peer_torch.py" --device cuda --seconds 3 all || return
    cat >"$results/ratios.py" <<'PYTHON'
import json, sys

def rows(path):
    found = {}
    for line in open(path):
        if line.startswith("{"):
            row = json.loads(line)
            found[(row["workload"], row["batch"])] = row
    return found

ours, theirs = rows(sys.argv[1]), rows(sys.argv[2])
out = []
for key in theirs:
    if key not in ours:
        continue
    a, b = ours[key], theirs[key]
    name = key[0] if key[1] is None else f"{key[0]}, batch {key[1]}"
    ratio = a["ms_per_step_median"] / b["ms_per_step_median"]
    out.append({"workload": key[0], "batch": key[1], "vramlab_ms": a["ms_per_step_median"],
                "torch_ms": b["ms_per_step_median"], "vramlab_to_torch": ratio,
                "vramlab_peak_bytes": a["peak_bytes"], "torch_peak_bytes": b["peak_bytes"],
                "losses": [a["losses_head"], b["losses_head"]]})
    print(f"{name}: {a['ms_per_step_median']:.3f} ms, PyTorch {b['ms_per_step_median']:.3f} ms, {ratio:.2f} of its time")
json.dump(out, open(sys.argv[3], "w"))
PYTHON
    run torch python3 "$results/ratios.py" "$results/torch-ours.log" "$results/torch-theirs.log" "$results/torch.out.json"
    cat "$results/torch.log"
}

# The programs whose memory was recorded, on the card's own PyTorch, each in a process of its own.
check_recorded() {
    [ -d "$bin/recorded" ] || { skip recorded "no recorded programs came along: pack FOLDER peer_torch.py RECORDED"; return; }
    sees_gpu || { skip recorded "no PyTorch that sees a GPU here"; return; }
    cat >"$results/recorded.py" <<'PYTHON'
import glob, json, os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
import torch

folder, out = sys.argv[1:3]
major, minor = torch.cuda.get_device_capability()
here = f"sm_{major}{minor}"
print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()} ({here})", flush=True)

def compared(path):
    recorded = json.load(open(path))
    name, env = recorded["name"], dict(recorded["env"])
    # Of another card, of a smaller one, or with what only the stand-in driver has.
    for_another = not recorded["device"].endswith(here) or recorded["cudnn_enabled"] or any("FAKECUDA" in key for key in env)
    if for_another or name == "i_streams":
        return name, {"ran": False}
    if recorded["alloc_conf"]:
        env["PYTORCH_ALLOC_CONF"] = recorded["alloc_conf"]
    command = [sys.executable, f"{folder}/recorded_scripts.py", name, path]
    ran = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    lines = ran.stdout.splitlines() or ran.stderr.splitlines()[-1:] or ["said nothing"]
    print(f"{name}: {lines[0]}", flush=True)
    equal = ran.returncode == 0
    return name, {"ran": True, "equal": equal, "summary": lines[0], "first": [] if equal else lines[1:3]}

# Most of their time is PyTorch's start.
with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
    found = dict(pool.map(compared, sorted(glob.glob(f"{folder}/scripts/*.json"))))
json.dump({"torch": torch.__version__, "device": here, "programs": found}, open(out, "w"))
ran = [one for one in found.values() if one["ran"]]
equal = sum(one["equal"] for one in ran)
print(f"{equal} of {len(ran)} programs equal the recording in every row; {len(found) - len(ran)} are for other devices")
sys.exit(equal != len(ran))
PYTHON
    run recorded env LD_LIBRARY_PATH="$own_path" python3 "$results/recorded.py" "$bin/recorded" "$results/recorded.out.json"
}

# Where a library lies that the loader does not find by the name that is looked for: the newest in the usual places.
library() {
    python=$(python3 -c 'import site; print(*site.getsitepackages(), site.getusersitepackages())' 2>/dev/null)
    for folder in ${LIBRARIES:-} "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib \
        /usr/lib/x86_64-linux-gnu /usr/lib64; do
        ls "$folder/$1".so.$majors 2>/dev/null
    done | tail -n 1
    for folder in $python; do
        ls "$folder"/nvidia/*/lib/"$1".so.$majors 2>/dev/null
    done | tail -n 1
}

# Puts the folders of NVRTC and cuBLASLt on the library path, of CUDA 12 up to what the driver runs; and that of cuDNN 9.
find_libraries() {
    own_path=${LD_LIBRARY_PATH:-}
    cuda=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: 1\([2-9]\).*/\1/p' | head -n 1)
    # What is on the path already comes first.
    LD_LIBRARY_PATH=$own_path
    for name in libnvrtc libcublasLt libcudnn; do
        majors="1[2-${cuda:-9}]"
        [ $name != libcudnn ] || majors=9
        found=$(library $name | head -n 1)
        [ -n "$found" ] || { echo "$name: in none of the usual places"; continue; }
        echo "$name: $found"
        LD_LIBRARY_PATH=$LD_LIBRARY_PATH${LD_LIBRARY_PATH:+:}$(dirname "$found")
    done
    export LD_LIBRARY_PATH
}

if [ "${1:-}" = pack ]; then
    [ $# -ge 2 ] && [ $# -le 4 ] || { echo "usage: $0 pack FOLDER [peer_torch.py [RECORDED]]" >&2; exit 2; }
    mkdir -p "$2" || exit 1
    peer=${3:-}
    case $peer in '' | /*) ;; *) peer=$PWD/$peer ;; esac
    recorded=${4:-}
    case $recorded in '' | /*) ;; *) recorded=$PWD/$recorded ;; esac
    pack "$(cd "$2" && pwd)" "$peer" "$recorded"
    exit
fi

for part in "$@"; do
    case " $parts " in
        *" $part "*) ;;
        *) echo "unknown part $part; known: $parts" >&2; exit 2 ;;
    esac
done
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd)
bin=$results/bin
tar -C "$results" -xzf "$here/bin.tar.gz" || { echo "no bin.tar.gz beside $0: scripts/gpu-check.sh pack FOLDER makes it" >&2; exit 1; }
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$gpu" ] || { gpu="unknown: no nvidia-smi"; echo "no nvidia-smi here: the parts will say what is missing"; }
echo "GPU: $gpu"
find_libraries
failed=
rm -f "$results"/*.json
for part in ${*:-$parts}; do
    "check_$part"
done
# Every part's file, as one list.
{
    echo '['
    comma=
    for file in "$results"/*.json; do
        case $file in *.out.json | */results.json) continue ;; esac
        printf '%s' "$comma" && cat "$file" && comma=,
    done
    echo ']'
} >"$results/results.part" && mv "$results/results.part" "$results/results.json"
if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
fi
echo "nothing that ran has failed; results in $results/results.json"
