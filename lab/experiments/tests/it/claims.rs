//! Every claim of the articles has an experiment, a verdict and a number.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use lab_experiments::claims::{ARTICLES, articles, checked};
use lab_experiments::{ALL, Outcome, Setup, by_name};
use memcore::Device;
use memcore::backend::Meta;

/// The experiments for the articles, each with the articles whose claims it must judge.
const TABLE: &[(&str, &[&str])] = &[
    ("batch-size", &["000", "002", "003"]),
    ("steady-state", &["001"]),
    ("leak", &["001"]),
    ("release", &["000", "001"]),
    ("cache", &["000"]),
    ("equation", &["002"]),
    ("network-size", &["003"]),
    ("precision", &["001", "002", "003"]),
    ("accumulation", &["002"]),
    ("checkpointing", &["001", "002", "003"]),
    ("model-parallel", &["002"]),
    ("optimizer", &["001", "002"]),
    ("placement", &["001"]),
    ("quantization", &["003"]),
    ("sequence-length", &["001"]),
    ("fit", &["003"]),
    ("fragmentation", &["000"]),
];

#[test]
fn every_row_of_the_table_is_covered() {
    for (name, expected) in TABLE {
        let claims = by_name(name).unwrap().claims();
        let found: BTreeSet<&str> = claims.iter().flat_map(|claim| articles(claim.source)).collect();
        for article in *expected {
            assert!(found.contains(article), "{name} judges no claim of article {article}: {found:?}");
        }
    }
    for text in ["empty_cache gives", "nvidia-smi shows what a model needs", "proportionally more"] {
        let claims = by_name("beliefs").unwrap().claims();
        assert!(claims.iter().any(|claim| claim.text.contains(text)), "{text}");
    }
}

#[test]
fn every_source_is_an_article_or_says_who_it_is() {
    for claim in ALL.iter().flat_map(|experiment| experiment.claims()) {
        let found = articles(claim.source);
        let thread = [", issue ", ", pull request "].iter().any(|kind| claim.source.contains(kind));
        let other = thread || ["widely said", "ZeRO, arXiv 1910.02054 (2020)"].contains(&claim.source);
        assert_eq!(found.is_empty(), other, "{claim:?}");
        // Several names in one entry are all found.
        assert!(other || found.len() == claim.source.split("; ").count(), "{claim:?}");
    }
    assert_eq!(ARTICLES.map(|(number, _)| number), ["000", "001", "002", "003"]);
}

#[test]
fn every_claim_has_a_number_and_its_articles_come_in_order() {
    let open = || Ok(Device::new(Meta::default()));
    let run = |name: &str| {
        let progress = |_: &str, _: f64| ControlFlow::Continue(());
        let setup =
            Setup { open: &open, places: &[], model: None, sizes: BTreeMap::new(), seed: 0, progress: &progress };
        by_name(name).unwrap().ask(&setup).unwrap()
    };
    let outcomes: Vec<(&str, Outcome)> = ALL.iter().map(|e| (e.name(), run(e.name()))).collect();
    let found: Vec<(&str, &Outcome)> = outcomes.iter().map(|(name, outcome)| (*name, outcome)).collect();
    let claims = checked(&found);
    assert_eq!(claims.len(), ALL.iter().map(|e| e.claims().len()).sum::<usize>());
    for claim in &claims {
        assert_ne!(claim.number, "–", "no number for {:?} of {}", claim.claim, claim.experiment);
        assert!(claim.number.contains(|c: char| c.is_ascii_digit()) || claim.number.contains("without values"));
    }
    let first: Vec<&str> = claims.iter().filter_map(|claim| claim.articles.first().map(String::as_str)).collect();
    assert!(first.is_sorted() && first.first() == Some(&"000") && first.last() == Some(&"003"), "{first:?}");
    assert!(claims[first.len()..].iter().all(|claim| claim.articles.is_empty()), "nobody's article comes last");
}
