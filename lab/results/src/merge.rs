//! Joins the parts of a scan, or of several runs, from several machines.

use lab_base::error::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use super::experiment::ExperimentResult;
use super::experiment_scan::ExperimentScanResult;
use super::findings::Findings;
use super::rehearsal_scan::RehearsalScanResult;
use super::scan::ScanResult;
use super::shard::Shard;

/// Results with their parts joined.
#[derive(Debug, Default)]
pub struct Merged {
    /// All results; parts are replaced by their joined result.
    pub results: Vec<Value>,
    /// Results that were joined.
    pub wholes: Vec<Whole>,
}

/// A joined result.
#[derive(Debug, Default)]
pub struct Whole {
    /// The results to show: one for a scan, one for each experiment.
    pub results: Vec<Value>,
    /// Number of runs that it should have.
    pub runs: usize,
    /// Number of parts read, and number of all parts.
    pub parts: (usize, usize),
    /// Missing runs, each with the part that should have it.
    pub missing: Vec<String>,
}

/// Joins parts; other results stay as they are.
///
/// # Errors
/// [`Error::Usage`]: a part that lacks its description, two different results of one run.
pub fn merge(results: Vec<Value>) -> Result<Merged> {
    let mut groups: Vec<Group> = Vec::new();
    let mut merged = Merged::default();
    for mut result in results {
        let shard = result.as_object_mut().and_then(|fields| fields.remove("shard")).filter(|shard| !shard.is_null());
        let Some(shard) = shard else {
            merged.results.push(result);
            continue;
        };
        let shard: Shard = serde_json::from_value(shard).map_err(|error| wrong(error.to_string()))?;
        if shard.index == 0 || shard.index > shard.count {
            return Err(wrong(format!("part {} of {}", shard.index, shard.count)));
        }
        match groups.iter_mut().find(|group| group.takes(&result, &shard)) {
            Some(group) => group.add(result, &shard)?,
            None => {
                let mut group = Group::new(&result, &shard);
                group.add(result, &shard)?;
                groups.push(group);
            }
        }
    }
    for group in groups {
        let whole = group.whole()?;
        merged.results.extend(whole.results.iter().cloned());
        merged.wholes.push(whole);
    }
    Ok(merged)
}

fn wrong(problem: impl Into<String>) -> Error {
    Error::usage("shard", problem.into())
}

/// The parts of one whole.
struct Group {
    schema: String,
    shard: Shard,
    /// Fields of the first part, except the runs.
    frame: Value,
    /// Parts read.
    parts: Vec<usize>,
    /// Each run of the whole, if a part has it.
    runs: Vec<Option<Value>>,
}

impl Group {
    fn new(result: &Value, shard: &Shard) -> Self {
        let schema = result["schema"].as_str().unwrap_or_default().to_string();
        let runs = vec![None; shard.whole.len()];
        Self { schema, shard: shard.clone(), frame: result.clone(), parts: Vec::new(), runs }
    }

    fn takes(&self, result: &Value, shard: &Shard) -> bool {
        let same =
            |other: &Shard| (other.count, &other.asked, &other.whole) == (shard.count, &shard.asked, &shard.whole);
        result["schema"] == self.schema.as_str() && same(&self.shard)
    }

    /// Name of the field with the runs; an experiment is a run itself.
    fn list(&self) -> Option<&'static str> {
        match self.schema.as_str() {
            ScanResult::SCHEMA | ExperimentScanResult::SCHEMA => Some("results"),
            RehearsalScanResult::SCHEMA => Some("points"),
            _ => None,
        }
    }

    fn add(&mut self, mut result: Value, shard: &Shard) -> Result<()> {
        if !self.parts.contains(&shard.index) {
            self.parts.push(shard.index);
        }
        let found: Vec<(usize, Value)> = match self.list() {
            Some(list) => {
                let runs = result[list].as_array_mut().map(std::mem::take);
                let runs = runs.ok_or_else(|| wrong(format!("{} without {list}", self.schema)))?;
                let place = |(i, run)| (shard.index - 1 + i * shard.count, run);
                runs.into_iter().enumerate().map(place).collect()
            }
            None if self.schema == ExperimentResult::SCHEMA => {
                let name = result["experiment"].as_str().unwrap_or_default();
                let place = self.shard.whole.iter().position(|one| one == name);
                vec![(place.ok_or_else(|| wrong(format!("{name:?} is not of the whole")))?, result)]
            }
            None => return Err(wrong(format!("{} has no parts", self.schema))),
        };
        for (place, run) in found.into_iter().filter(|(_, run)| !is_interrupted(run)) {
            let slot = self.runs.get_mut(place).ok_or_else(|| wrong("a part has more runs than it should"))?;
            match slot {
                Some(there) if *there != run => {
                    return Err(wrong(format!("two different results of {}", self.shard.whole[place])));
                }
                _ => *slot = Some(run),
            }
        }
        Ok(())
    }

    fn whole(self) -> Result<Whole> {
        let named = |i: usize| {
            let part = i % self.shard.count + 1;
            format!("{} (part {part} of {})", self.shard.whole[i], self.shard.count)
        };
        let missing: Vec<String> = (0..self.runs.len()).filter(|i| self.runs[*i].is_none()).map(named).collect();
        let (runs, parts, list) = (self.runs.len(), (self.parts.len(), self.shard.count), self.list());
        let there: Vec<Value> = self.runs.into_iter().flatten().collect();
        let results = match list {
            None => there,
            Some(list) => {
                let mut frame = self.frame;
                frame[list] = Value::Array(there);
                frame["interrupted"] = (!missing.is_empty()).into();
                vec![if list == "points" { with_law(&frame)? } else { with_sentence(frame) }]
            }
        };
        Ok(Whole { results, runs, parts, missing })
    }
}

/// Says of the whole what its first part said of itself.
fn with_sentence(mut scan: Value) -> Value {
    let sentence = match scan["schema"].as_str() {
        Some(ScanResult::SCHEMA) => ScanResult::deserialize(&scan).ok().map(|scan| scan.title()),
        Some(ExperimentScanResult::SCHEMA) => ExperimentScanResult::deserialize(&scan).ok().map(|scan| scan.title()),
        _ => None,
    };
    match (sentence, scan.as_object_mut()) {
        (Some(sentence), Some(fields)) => drop(fields.insert("sentence".into(), sentence.into())),
        (None, Some(fields)) => drop(fields.remove("sentence")),
        (_, None) => {}
    }
    scan
}

/// True if a run was stopped before its end.
fn is_interrupted(run: &Value) -> bool {
    run["interrupted"] == true || run["run"]["interrupted"] == true || run["rehearsal"]["stopped"] == "interrupted"
}

/// Adds the law of all points to a scan of rehearsals.
fn with_law(scan: &Value) -> Result<Value> {
    let read: serde_json::Result<RehearsalScanResult> = Deserialize::deserialize(scan);
    let law = |mut scan: RehearsalScanResult| {
        scan.law = scan.law_of_points();
        scan.to_json()
    };
    read.and_then(law).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(index: usize, runs: &[u64]) -> Value {
        let whole: Vec<String> = (1..=5).map(|batch| format!("batch {batch}")).collect();
        let shard = json!({ "index": index, "count": 2, "asked": { "model": "mlp" }, "whole": whole });
        let runs: Vec<Value> =
            runs.iter().map(|batch| json!({ "parameters": { "batch": batch }, "run": {} })).collect();
        json!({ "schema": "vramlab-scan-1", "parameters": ["batch"], "results": runs, "interrupted": false, "shard": shard })
    }

    fn batches(whole: &Value) -> Vec<u64> {
        whole["results"].as_array().unwrap().iter().map(|run| run["parameters"]["batch"].as_u64().unwrap()).collect()
    }

    #[test]
    fn parts_in_any_order_are_the_whole_in_its_order() {
        let merged = merge(vec![part(2, &[2, 4]), json!({ "schema": "vramlab-fit-1" }), part(1, &[1, 3, 5])]).unwrap();
        let [whole] = &merged.wholes[..] else { panic!("{merged:?}") };
        assert_eq!((batches(&whole.results[0]), whole.missing.len(), whole.parts), (vec![1, 2, 3, 4, 5], 0, (2, 2)));
        assert_eq!((&whole.results[0]["interrupted"], whole.results[0].get("shard")), (&json!(false), None));
        assert_eq!(merged.results.len(), 2);
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut stopped = part(1, &[1, 3]);
        stopped["results"][1]["run"]["interrupted"] = true.into();
        let merged = merge(vec![stopped]).unwrap();
        let missing =
            ["batch 2 (part 2 of 2)", "batch 3 (part 1 of 2)", "batch 4 (part 2 of 2)", "batch 5 (part 1 of 2)"];
        assert_eq!(merged.wholes[0].missing, missing);
        assert_eq!(merged.results[0]["interrupted"], true);
    }

    #[test]
    fn parts_of_different_wholes_stay_apart_and_contradictions_are_errors() {
        let mut other = part(2, &[2, 4]);
        other["shard"]["asked"]["model"] = "gpt2".into();
        assert_eq!(merge(vec![part(1, &[1, 3, 5]), other]).unwrap().wholes.len(), 2);
        assert_eq!(merge(vec![part(1, &[1, 3, 5]), part(1, &[1, 3, 5])]).unwrap().wholes[0].parts, (1, 2));
        let message = |results| merge(results).unwrap_err().to_string();
        assert!(message(vec![part(1, &[1, 3, 5]), part(1, &[1, 9, 5])]).contains("two different results of batch 3"));
        assert!(message(vec![part(1, &[1, 3, 5, 7])]).contains("more runs"));
        assert!(message(vec![part(3, &[1])]).contains("part 3 of 2"));
    }
}
