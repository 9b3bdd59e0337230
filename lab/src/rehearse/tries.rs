//! Proposals that make a script fit, as data: each of them was rehearsed.

use lab_base::changes::{ALLOC_CONF, alloc_conf};
use lab_base::section::{Tries, Try};
use lab_results::command::quoted;
use lab_results::{RehearsalPoint, RehearsalResult, RehearsalScanResult};

use super::request::{Request, Use};
use super::scan::VARIABLE;

/// Names and values of a point.
pub(super) type Point = [(String, String)];

/// How the entries were checked.
pub(super) const ORDER: &str = "Try (each was rehearsed)";

/// Returns the point that sets the allocator: an empty setting takes away one from the environment.
pub(super) fn setting_point(conf: &str) -> (String, String) {
    (format!("{VARIABLE}{ALLOC_CONF}"), conf.into())
}

/// Returns the requested point that does not fit (the smallest, if they are numbers) with the setting that a replay prefers, if memory was
/// fragmented. The replay ends where the script did, so whether the setting helps only a rehearsal shows.
pub(super) fn setting(found: &RehearsalScanResult) -> Option<Vec<(String, String)>> {
    let point = smallest_failing(found).filter(|point| point.rehearsal.is_fragmented())?;
    let another = point.rehearsal.what_if.as_ref()?.another()?;
    let values = found.parameters.iter().cloned().zip(point.values.iter().cloned());
    Some(values.chain([setting_point(&another.alloc_conf)]).collect())
}

/// Makes the entries of a scan: the setting first, which changes least, if its rehearsal fits; then the largest value.
pub(super) fn of_scan(
    request: &Request,
    found: &RehearsalScanResult,
    setting: Option<(&Point, &RehearsalResult)>,
) -> Option<Tries> {
    failing(found).next()?;
    let mut tries = Tries { order: ORDER.into(), ..Tries::default() };
    if let Some((point, rehearsal)) = setting {
        let [values @ .., (_, conf)] = point else { return None };
        let what_if = smallest_failing(found)?.rehearsal.what_if.as_ref()?;
        let named: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value}")).collect();
        match rehearsal.fits {
            Some(true) => {
                let change = format!("{}, {}", what_if.as_change(conf), named.join(", "));
                tries.entries.push(Try { script: alloc_conf(conf), ..entry(change, request, point, rehearsal) });
            }
            _ => tries.search = what_if.does_not_help(conf, &named.join(", ")),
        }
    }
    tries.entries.extend(largest(request, found));
    (!tries.entries.is_empty()).then_some(tries)
}

/// Makes the entry of the largest value that fits.
fn largest(request: &Request, found: &RehearsalScanResult) -> Option<Try> {
    let [name] = found.parameters.as_slice() else { return None };
    let largest = found.largest.as_ref()?;
    let value = largest.value?.to_string();
    let fits = |point: &&RehearsalPoint| point.values == [value.clone()] && point.rehearsal.fits == Some(true);
    let point = found.points.iter().find(fits)?;
    let change = match largest.verified {
        true => format!("{name} {value}, the largest that fits"),
        false => format!("{name} {value}; a larger one may fit"),
    };
    Some(entry(change, request, &[(name.clone(), value)], &point.rehearsal))
}

/// Makes an entry with the figures of a rehearsal.
pub(super) fn entry(change: String, request: &Request, point: &Point, rehearsal: &RehearsalResult) -> Try {
    let rank = rehearsal.ranks.iter().max_by_key(|rank| rank.peak_reserved);
    let gpu = &rehearsal.gpu;
    let left = |reserved: u64| gpu.room().saturating_sub(reserved);
    Try {
        change,
        command: Some(command(request, point)),
        checked: true,
        peak_bytes: rank.map(|rank| rank.peak_allocated),
        reserved_bytes: rank.map(|rank| rank.peak_reserved),
        left_bytes: rank.map(|rank| left(rank.peak_reserved)),
        ..Try::default()
    }
}

fn failing(found: &RehearsalScanResult) -> impl Iterator<Item = &RehearsalPoint> {
    found.points.iter().filter(|point| !point.searched && point.rehearsal.fits == Some(false))
}

fn smallest_failing(found: &RehearsalScanResult) -> Option<&RehearsalPoint> {
    failing(found).min_by_key(|point| number(point))
}

fn number(point: &RehearsalPoint) -> Option<u64> {
    point.values.first()?.parse().ok()
}

/// Returns the command that rehearses one point: with variables in front, and values in place of their marks.
fn command(request: &Request, point: &Point) -> String {
    let mut words = Vec::new();
    let mut script: Vec<String> = request.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    for (name, value) in point {
        match name.strip_prefix(VARIABLE) {
            Some(variable) => words.push(format!("{variable}={}", quoted(value))),
            None => script.iter_mut().for_each(|word| *word = word.replace(&format!("{{{name}}}"), value)),
        }
    }
    words.push(started(flags(request), &script));
    words.join(" ")
}

/// Returns the command that finds the largest batch between two: the script's words have `{batch}` in place of it.
pub(super) fn scan_command(request: &Request, from: u64, to: u64) -> String {
    let script: Vec<String> = request.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    started([flags(request), vec![format!("-L batch {from},{to}")]].concat(), &script)
}

fn started(flags: Vec<String>, script: &[String]) -> String {
    let mut words = vec!["vramlab".to_string(), "predict".to_string()];
    words.extend(flags);
    words.push("--".into());
    words.extend(script.iter().map(|word| quoted(word)));
    words.join(" ")
}

/// Returns the flags that decide what a rehearsal takes.
fn flags(request: &Request) -> Vec<String> {
    let list = |values: Vec<String>| (!values.is_empty()).then(|| values.join(","));
    let seen = |name: &Use| match name {
        Use::Evaluation => "eval".to_string(),
        Use::Saving => "save".to_string(),
        Use::Generation => "generate".to_string(),
    };
    let (world, stop) = (request.world.as_ref(), &request.stop);
    let usual = super::world::cards_of_a_machine(world.map(|world| world.size));
    let chosen = world.filter(|world| !world.ranks.iter().copied().eq(0..world.size));
    let valued = [
        ("--gpu", Some(request.card.spelled.clone())),
        ("--gpus", (request.cards != usual).then(|| request.cards.to_string())),
        ("--world", world.map(|world| world.size.to_string())),
        ("--ranks", chosen.and_then(|world| list(world.ranks.iter().map(u32::to_string).collect()))),
        ("--steps", stop.steps.map(|steps| steps.to_string())),
        ("--seconds", stop.time.map(|time| time.as_secs_f64().to_string())),
        ("--until-seen", list(stop.until.iter().map(seen).collect())),
        ("--cudnn", (!request.asks_cudnn).then(|| "none".to_string())),
    ];
    let valued = valued.into_iter().filter_map(|(flag, value)| Some(format!("{flag} {}", quoted(&value?))));
    let alone =
        [("--late-events", request.late_events), ("--no-values", !request.values), ("--offline", request.offline)];
    // Its value is joined, since it may have none.
    let data = request.make_data.map(|words| format!("--make-data={words}"));
    valued.chain(data).chain(alone.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lab_base::cards::Card;
    use lab_results::{LargestValue, RehearsedGpu, RehearsedOom, RehearsedRank};
    use serde_json::json;

    use super::super::request::{RequestedCard, Stop};
    use super::*;

    fn request(words: &str) -> Request {
        let card = RequestedCard::from(Card::named("rtx4090").unwrap());
        let stop = Stop { time: Some(Duration::from_secs(9)), ..Stop::default() };
        Request { stop, ..Request::new(words.split(' ').map(Into::into).collect(), card) }
    }

    fn rehearsal(fits: bool, reserved: u64, verdict: &str) -> RehearsalResult {
        let cost = |reserved: u64| json!({ "peak_reserved": reserved, "driver_calls": 1, "failed": 0 });
        let both = || json!({ "recorded": 0, "replayed": 0 });
        let what_if = json!({
            "self_check": { "exact": true, "segments": 0, "equal_segments": 0, "allocations": 0, "placed": 0, "peak_reserved": both(),
                "final_reserved": both(), "failed": both(), "allocations_before": 0 },
            "capacity_bytes": 1000,
            "recorded": { "alloc_conf": "", "cost": cost(900) },
            "tried": [{ "alloc_conf": "expandable_segments:True", "cost": cost(899) }],
        });
        let oom = RehearsedOom { verdict: verdict.into(), ..RehearsedOom::default() };
        let rank = RehearsedRank {
            peak_allocated: reserved - 1,
            peak_reserved: reserved,
            oom: (!fits).then_some(oom),
            ..RehearsedRank::default()
        };
        RehearsalResult {
            fits: Some(fits),
            gpu: RehearsedGpu { total_bytes: 1000, context_bytes: 50, ..RehearsedGpu::default() },
            ranks: vec![rank],
            what_if: Some(serde_json::from_value(what_if).unwrap()),
            ..RehearsalResult::default()
        }
    }

    fn scan(verdict: &str) -> RehearsalScanResult {
        let point =
            |value: u64, searched, rehearsal| RehearsalPoint { values: vec![value.to_string()], searched, rehearsal };
        let points = vec![
            point(24, false, rehearsal(false, 800, "full")),
            point(16, false, rehearsal(false, 800, verdict)),
            point(14, true, rehearsal(true, 900, "")),
            point(15, true, rehearsal(false, 900, "fragmented")),
        ];
        let largest = LargestValue { value: Some(14), perhaps: None, verified: true, in_words: String::new() };
        let parameters = vec!["batch".into()];
        RehearsalScanResult { parameters, points, largest: Some(largest), ..RehearsalScanResult::default() }
    }

    #[test]
    fn a_setting_is_tried_where_memory_was_fragmented() {
        let point = setting(&scan("fragmented")).unwrap();
        assert_eq!(point, [("batch".to_string(), "16".to_string()), setting_point("expandable_segments:True")]);
        assert_eq!(setting(&scan("full")), None);
    }

    #[test]
    fn the_defaults_are_tried_where_a_setting_was_recorded() {
        let mut found = scan("fragmented");
        let what_if = found.points[1].rehearsal.what_if.as_mut().unwrap();
        what_if.recorded.as_mut().unwrap().alloc_conf = "max_split_size_mb:32".into();
        what_if.tried[0].alloc_conf = String::new();
        let point = setting(&found).unwrap();
        assert_eq!(point[1], setting_point(""));
        let tried = |fits| {
            of_scan(&request("python train.py --batch={batch}"), &found, Some((&point, &rehearsal(fits, 940, ""))))
                .unwrap()
        };
        assert_eq!(tried(true).entries[0].change, "without max_split_size_mb:32, batch 16");
        assert_eq!(tried(false).search, "Without max_split_size_mb:32 batch 16 does not fit either.");
        // What was recorded is nothing to try.
        found.points[1].rehearsal.what_if.as_mut().unwrap().recorded.as_mut().unwrap().alloc_conf = String::new();
        assert_eq!(setting(&found), None);
    }

    #[test]
    fn a_setting_stands_before_a_smaller_value_only_if_it_fits() {
        let request = request("python train.py --batch={batch} a*b");
        let found = scan("fragmented");
        let point = setting(&found).unwrap();
        let tries = of_scan(&request, &found, Some((&point, &rehearsal(true, 940, "")))).unwrap();
        let [setting, largest] = &tries.entries[..] else { panic!("{tries:?}") };
        assert_eq!(setting.change, "expandable_segments:True, batch 16");
        assert_eq!((setting.peak_bytes, setting.reserved_bytes, setting.left_bytes), (Some(939), Some(940), Some(10)));
        let command = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True vramlab predict --gpu rtx4090 --seconds 9 -- \
                       python train.py --batch=16 'a*b'";
        assert_eq!(setting.command.as_deref(), Some(command));
        assert_eq!((largest.change.as_str(), largest.left_bytes), ("batch 14, the largest that fits", Some(50)));
        let tries = of_scan(&request, &found, Some((&point, &rehearsal(false, 940, "full")))).unwrap();
        assert_eq!(
            (tries.entries.len(), tries.search.as_str()),
            (1, "expandable_segments:True does not make batch 16 fit.")
        );
    }

    #[test]
    fn a_command_has_the_flags_that_decide_what_a_script_takes() {
        let mut request = request("python train.py");
        request.card = RequestedCard::of_bytes(5 << 30);
        request.world = Some(super::super::world::World::new(4, vec![0, 3]));
        (request.cards, request.values, request.asks_cudnn) = (2, false, false);
        request.stop = Stop { steps: Some(3), until: vec![Use::Evaluation, Use::Saving], ..Stop::default() };
        let expected = "vramlab predict --gpu 5368709120B --gpus 2 --world 4 --ranks 0,3 --steps 3 --until-seen eval,save --cudnn none \
                        --no-values -- python train.py";
        assert_eq!(command(&request, &[]), expected);
        request.world = Some(super::super::world::World::new(4, Vec::new()));
        request.cards = 4;
        assert!(command(&request, &[]).contains("B --world 4 --steps 3"), "{}", command(&request, &[]));
        request.make_data = Some(2048);
        assert!(
            command(&request, &[]).contains(" --cudnn none --make-data=2048 --no-values -- "),
            "the data is not there"
        );
    }
}
