#!/bin/sh
# Checks a build on a machine with an NVIDIA GPU and nothing else: no Rust, no network.
#
# On a machine that builds:   scripts/gpu-check.sh pack FOLDER
# On the machine with a GPU:  FOLDER/gpu-check.sh [devices|conformance|wgpu|experiments|train|bench|torch]...
#
# Without names every part runs. A part whose binary or tool is missing is skipped, with a word. Each writes one JSON
# file into RESULTS (gpu-check-results): what ran, its exit code, how long it took, and where its output is.
set -u

here=$(cd "$(dirname "$0")" && pwd)
results=${RESULTS:-gpu-check-results}
parts="devices conformance wgpu experiments train bench torch"

# Builds what is needed and copies it beside this script.
pack() {
    folder=$1
    root=$(dirname "$here")
    mkdir -p "$folder"
    (cd "$root" && cargo build --release -p cli) || exit 1
    target=${CARGO_TARGET_DIR:-$root/target}
    cp "$target/release/vramlab" "$folder/" || exit 1
    for backend in cuda wgpu; do
        # Cargo says where a test binary is: its name ends with a hash.
        tests=$(cd "$root" && cargo test --release -p "backend-$backend" --test conformance --no-run 2>&1) || exit 1
        conformance=$(printf '%s\n' "$tests" | sed -n 's/.*(\(.*conformance-[0-9a-f]*\)).*/\1/p' | tail -1)
        case $conformance in
            /*) cp "$conformance" "$folder/conformance-$backend" ;;
            *) cp "$root/$conformance" "$folder/conformance-$backend" ;;
        esac || exit 1
    done
    (cd "$root" && cargo bench -p benches --no-run 2>&1) | sed -n 's/.*(\(.*\/deps\/[a-z_]*-[0-9a-f]*\)).*/\1/p' |
        while read -r bench; do
            name=$(basename "$bench" | sed 's/-[0-9a-f]*$//')
            case $bench in /*) ;; *) bench=$root/$bench ;; esac
            cp "$bench" "$folder/bench-$name"
        done
    cp "$here/gpu-check.sh" "$folder/"
    echo "packed into $folder"
}

# A text as a JSON string.
quoted() {
    printf '"%s"' "$(printf '%s' "$1" | tr '\n\t' '  ' | sed 's/\\/\\\\/g; s/"/\\"/g')"
}

skip() {
    echo "$1: skipped, $2"
    printf '{"part": "%s", "ran": false, "reason": %s}\n' "$1" "$(quoted "$2")" >"$results/$1.json"
}

# Runs a part: its name, then the command. Its output is kept beside the JSON.
run() {
    part=$1
    shift
    echo "$part: $*"
    begin=$(date +%s)
    "$@" >"$results/$part.log" 2>&1
    code=$?
    end=$(date +%s)
    [ $code -eq 0 ] || failed="$failed $part"
    printf '{"part": "%s", "ran": true, "command": %s, "exit_code": %d, "seconds": %d, "date": "%s", "gpu": %s, "log": "%s.log"}\n' \
        "$part" "$(quoted "$*")" $code $((end - begin)) "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(quoted "$gpu")" "$part" \
        >"$results/$part.json"
    echo "$part: exit code $code after $((end - begin)) s"
    tail -3 "$results/$part.log" | sed 's/^/    /'
}

check_devices() {
    [ -x "$here/vramlab" ] || { skip devices "no vramlab here"; return; }
    run devices "$here/vramlab" devices --json "$results/devices-found.json"
}

check_conformance() {
    [ -x "$here/conformance-cuda" ] || { skip conformance "no conformance-cuda here"; return; }
    run conformance env REQUIRE_DEVICE=cuda "$here/conformance-cuda" --quiet
}

# The same card through Vulkan.
check_wgpu() {
    [ -x "$here/conformance-wgpu" ] || { skip wgpu "no conformance-wgpu here"; return; }
    run wgpu env REQUIRE_DEVICE=wgpu "$here/conformance-wgpu" --quiet
}

check_experiments() {
    [ -x "$here/vramlab" ] || { skip experiments "no vramlab here"; return; }
    run experiments "$here/vramlab" run all --backend cuda --json "$results/experiments-outcome.json"
}

check_train() {
    [ -x "$here/vramlab" ] || { skip train "no vramlab here"; return; }
    run train "$here/vramlab" train --model mlp --backend cuda --json "$results/train-outcome.json"
}

check_bench() {
    found=
    for bench in "$here"/bench-*; do
        [ -x "$bench" ] || continue
        found=yes
        run "$(basename "$bench")" "$bench" --bench
    done
    [ -n "$found" ] || skip bench "no benches here"
}

check_torch() {
    [ -d "$here/torch" ] || { skip torch "no folder torch with scripts of the same programs here"; return; }
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
        { skip torch "no PyTorch with CUDA here"; return; }
    for script in "$here"/torch/*.py; do
        [ -f "$script" ] && run "torch-$(basename "$script" .py)" python3 "$script"
    done
}

if [ "${1:-}" = pack ]; then
    [ $# -eq 2 ] || { echo "usage: $0 pack FOLDER" >&2; exit 2; }
    pack "$2"
    exit
fi

mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd)
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -1)
[ -n "$gpu" ] || { gpu="unknown: no nvidia-smi"; echo "no nvidia-smi here: the parts will say what is missing"; }
echo "GPU: $gpu"
failed=
for part in ${*:-$parts}; do
    case " $parts " in
        *" $part "*) "check_$part" ;;
        *) echo "unknown part $part; known: $parts" >&2; exit 2 ;;
    esac
done
if [ -n "$failed" ]; then
    echo "failed:$failed"
    exit 1
fi
echo "nothing that ran has failed; results in $results"
