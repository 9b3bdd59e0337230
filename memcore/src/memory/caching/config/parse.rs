//! Parser of the options.

use super::tokens::{Tokens, invalid};
use super::{AllocatorConfig, ExpandableReserve, MIB, TorchVersion};
use crate::error::Result;

impl AllocatorConfig {
    /// Parses further settings. Options about splitting, rounding and collection return to their defaults first; the
    /// others keep their values.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) with PyTorch's message. Options before the faulty one are then in
    /// force.
    pub fn update(&mut self, settings: &str) -> Result<()> {
        self.last_settings = settings.to_string();
        self.max_split_size_bytes = u64::MAX;
        self.roundup_power2_divisions = [0; 16];
        self.garbage_collection_threshold = 0.0;
        let tokens = Tokens::split(settings);
        // In a pass of its own, since the bounds of other options depend on it.
        for index in 0..tokens.len() {
            if tokens.get(index)? == "large_segment_size_mb" {
                let mb = tokens.unsigned(index + 2)?;
                if mb <= 10 {
                    return Err(invalid("CachingAllocator option large_segment_size_mb must be > 10 MB"));
                }
                self.large_segment_bytes = capped_mb(mb);
            }
        }
        self.max_non_split_rounding_bytes = self.large_segment_bytes;
        let mut index = 0;
        while index < tokens.len() {
            let key = tokens.get(index)?.to_string();
            let last = self.option(&key, &tokens, index + 2)?;
            index = last + 2; // over the value's last token and the separator behind it
        }
        Ok(())
    }

    /// Parses one option whose value starts at token `at`; returns the index of the value's last token.
    fn option(&mut self, key: &str, tokens: &Tokens<'_>, at: usize) -> Result<usize> {
        let newer = self.version >= TorchVersion::V2_15;
        match key {
            "max_split_size_mb" => self.max_split_size_bytes = self.bounded_mb(key, tokens.unsigned(at)?)?,
            "max_non_split_rounding_mb" => {
                self.max_non_split_rounding_bytes = self.bounded_mb(key, tokens.unsigned(at)?)?;
            }
            "large_segment_size_mb" => {
                tokens.unsigned(at)?;
            }
            "garbage_collection_threshold" => {
                let threshold = tokens.float(at)?;
                if !(threshold > 0.0 && threshold < 1.0) {
                    return Err(invalid("garbage_collect_threshold is invalid, set it in (0.0, 1.0)"));
                }
                self.garbage_collection_threshold = threshold;
            }
            "roundup_power2_divisions" => return self.divisions(tokens, at),
            "expandable_segments" => self.expandable_segments = tokens.boolean(at)?,
            "per_process_memory_fraction" => {
                let fraction = tokens.float(at)?;
                if !(0.0..=1.0).contains(&fraction) {
                    return Err(invalid("per_process_memory_fraction is invalid, set it in [0.0, 1.0]"));
                }
                self.per_process_memory_fraction = fraction;
            }
            "graph_capture_record_stream_reuse" => self.graph_capture_record_stream_reuse = tokens.boolean(at)?,
            "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
                self.release_lock_on_device_malloc = tokens.boolean(at)?;
            }
            "backend" => backend(tokens.get(at)?)?,
            "throw_on_cudamalloc_oom" if newer => self.throw_on_oom = tokens.boolean(at)?,
            "expandable_segments_reserve" if newer => {
                // A value that is not a size is ignored; PyTorch warns.
                self.expandable_reserve = reserve(tokens.get(at)?).or(self.expandable_reserve);
            }
            "expandable_segments_reserve_by_class" if newer => return list_end(tokens, at),
            _ if key.starts_with("pinned_") => self.pinned_option(key, tokens, at)?,
            _ => return Err(unrecognized(key)),
        }
        Ok(at)
    }

    fn bounded_mb(&self, key: &str, mb: u64) -> Result<u64> {
        let least = self.large_segment_bytes / MIB;
        if mb < least {
            return Err(invalid(format!("CachingAllocator option {key} too small, must be >= {least}")));
        }
        Ok(capped_mb(mb))
    }

    /// Parses `N`, or `[B:D,…,>:D]`: the divisions for each power of two in MiB.
    fn divisions(&mut self, tokens: &Tokens<'_>, at: usize) -> Result<usize> {
        let table = &mut self.roundup_power2_divisions;
        if tokens.get(at)? != "[" {
            let division = tokens.unsigned(at)?;
            if !division.is_power_of_two() {
                return Err(invalid("For roundups, the divisions has to be power of 2 "));
            }
            *table = [division; 16];
            return Ok(at);
        }
        let (mut index, mut last) = (at + 1, None);
        while tokens.get(index)? != "]" {
            let from = tokens.get(index)?;
            let open_end = from == ">";
            let interval = if open_end { 0 } else { tokens.unsigned(index)? };
            let division = tokens.unsigned(index + 2)?;
            if division != 0 && !division.is_power_of_two() {
                return Err(invalid("For roundups, the divisions has to be power of 2 or 0 to disable roundup "));
            }
            if open_end {
                table[last.map_or(1, |last| last + 1)..].fill(division);
            } else {
                if !interval.is_power_of_two() {
                    return Err(invalid("For roundups, the intervals have to be power of 2 "));
                }
                let entry = (interval.ilog2() as usize).min(15);
                if last.is_none() {
                    table[..entry].fill(division);
                }
                table[entry] = division;
                last = Some(entry);
            }
            index += 3;
            if tokens.get(index)? != "]" {
                index += 1;
            }
        }
        Ok(index)
    }

    fn pinned_option(&mut self, key: &str, tokens: &Tokens<'_>, at: usize) -> Result<()> {
        let pinned = &mut self.pinned;
        match key {
            "pinned_use_cuda_host_register" | "pinned_use_hip_host_register" => {
                pinned.use_host_register = tokens.boolean(at)?;
            }
            "pinned_num_register_threads" => {
                let threads = tokens.unsigned(at)?;
                if !threads.is_power_of_two() {
                    let text = "Number of register threads has to be power of 2, got ";
                    return Err(invalid(format!("{text}{threads}")));
                }
                if threads > 128 {
                    let text = "Number of register threads should be less than or equal to 128, got ";
                    return Err(invalid(format!("{text}{threads}")));
                }
                pinned.num_register_threads = threads;
            }
            "pinned_use_background_threads" => pinned.use_background_threads = tokens.boolean(at)?,
            "pinned_reserve_segment_size_mb" => {
                let mb = tokens.unsigned(at)?;
                if mb == 0 {
                    return Err(invalid("Pinned reserve segment size has to be greater than 0"));
                }
                pinned.reserve_segment_mb = mb;
            }
            "pinned_free_catch_all" if self.version >= TorchVersion::V2_15 => {
                tokens.boolean(at)?;
            }
            "pinned_max_round_threshold_mb" | "pinned_max_cached_size_mb" if self.version >= TorchVersion::V2_15 => {
                tokens.unsigned(at)?;
            }
            _ => return Err(unrecognized(key)),
        }
        Ok(())
    }
}

fn unrecognized(key: &str) -> crate::Error {
    invalid(format!("Unrecognized key '{key}' in Accelerator allocator config."))
}

fn capped_mb(mb: u64) -> u64 {
    mb.min(u64::MAX / MIB) * MIB
}

fn backend(name: &str) -> Result<()> {
    match name {
        "native" => Ok(()),
        "cudaMallocAsync" => {
            Err(invalid("backend cudaMallocAsync is the driver's own allocator; only native is modelled"))
        }
        _ => Err(invalid("Unknown allocator backend, options are native and cudaMallocAsync")),
    }
}

/// Parses `0.5` (of the device) or `12G`.
fn reserve(text: &str) -> Option<ExpandableReserve> {
    let positive = |number: &str| number.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    match text.strip_suffix('G') {
        Some(gib) => positive(gib).map(|gib| ExpandableReserve::Bytes((gib * (1u64 << 30) as f64) as u64)),
        None => positive(text).map(ExpandableReserve::Fraction),
    }
}

/// Skips a list: it tags classes of streams, and streams here have no classes.
fn list_end(tokens: &Tokens<'_>, at: usize) -> Result<usize> {
    let mut index = at;
    while tokens.get(index)? != "]" {
        index += 1;
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn problem(settings: &str) -> String {
        match AllocatorConfig::parse(settings) {
            Err(Error::Invalid { problem, .. }) => problem,
            other => panic!("{settings}: {other:?}"),
        }
    }

    #[test]
    fn options_are_read() {
        let config = AllocatorConfig::parse(
            " max_split_size_mb : 64 ,garbage_collection_threshold:0.8,expandable_segments:True,large_segment_size_mb:32,",
        )
        .unwrap();
        assert_eq!((config.max_split_size_bytes, config.large_segment_bytes), (64 * MIB, 32 * MIB));
        assert_eq!(config.max_non_split_rounding_bytes, 32 * MIB);
        assert_eq!((config.garbage_collection_threshold, config.expandable_segments), (0.8, true));
        assert_eq!(AllocatorConfig::parse("max_split_size_mb:25.7").unwrap().max_split_size_bytes, 25 * MIB);
        let capped = AllocatorConfig::parse("max_split_size_mb:-1").unwrap().max_split_size_bytes;
        assert_eq!(capped, u64::MAX / MIB * MIB);
        assert_eq!(AllocatorConfig::parse("").unwrap(), AllocatorConfig::default());
    }

    #[test]
    fn divisions_have_two_forms() {
        let table = |settings: &str| AllocatorConfig::parse(settings).unwrap().roundup_power2_divisions;
        assert_eq!(table("roundup_power2_divisions:8"), [8; 16]);
        let mut expected = [8; 16];
        expected[..9].fill(1);
        expected[9] = 2;
        expected[10] = 4;
        assert_eq!(table("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"), expected);
        assert_eq!(table("roundup_power2_divisions:[1:8,2:4,64:2,>:1]")[..8], [8, 4, 0, 0, 0, 0, 2, 1]);
        assert_eq!(table("roundup_power2_divisions:[]"), [0; 16]);
        assert_eq!(table("roundup_power2_divisions:[65536:4]"), [4; 16]);
        let followed = AllocatorConfig::parse("roundup_power2_divisions:[1:2],expandable_segments:True").unwrap();
        assert!(followed.expandable_segments);
    }

    #[test]
    fn faults_have_pytorchs_texts() {
        for (settings, text) in [
            ("max_split_size_mb:19", "CachingAllocator option max_split_size_mb too small, must be >= 20"),
            (
                "max_non_split_rounding_mb:1",
                "CachingAllocator option max_non_split_rounding_mb too small, must be >= 20",
            ),
            ("large_segment_size_mb:10", "CachingAllocator option large_segment_size_mb must be > 10 MB"),
            ("garbage_collection_threshold:1", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"),
            ("roundup_power2_divisions:0", "For roundups, the divisions has to be power of 2 "),
            ("roundup_power2_divisions:[3:2]", "For roundups, the intervals have to be power of 2 "),
            (
                "roundup_power2_divisions:[4:3]",
                "For roundups, the divisions has to be power of 2 or 0 to disable roundup ",
            ),
            ("roundup_power2_divisions:[4:2", "Index out of bounds in ConfigTokenizer"),
            ("per_process_memory_fraction:1.5", "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"),
            ("backend:own", "Unknown allocator backend, options are native and cudaMallocAsync"),
            (",expandable_segments:True", "Unrecognized key ',' in Accelerator allocator config."),
            (
                "throw_on_cudamalloc_oom:True",
                "Unrecognized key 'throw_on_cudamalloc_oom' in Accelerator allocator config.",
            ),
            ("max_split_size_mb", "Index out of bounds in ConfigTokenizer"),
            ("max_split_size_mb:x", "stoull"),
            ("garbage_collection_threshold:x", "stod"),
            // A wrong separator is skipped: 40, then ":" in place of the comma, then "True" as a key.
            (
                "max_split_size_mb:40;expandable_segments:True",
                "Unrecognized key 'True' in Accelerator allocator config.",
            ),
        ] {
            assert_eq!(problem(settings), text, "{settings}");
        }
    }

    #[test]
    fn an_update_resets_some_options_and_keeps_what_stood_before_a_fault() {
        let mut config = AllocatorConfig::parse("max_split_size_mb:40,expandable_segments:True").unwrap();
        config.update("").unwrap();
        assert_eq!((config.max_split_size_bytes, config.expandable_segments), (u64::MAX, true));
        assert!(config.update("max_split_size_mb:50,nonsense:1").is_err());
        assert_eq!(config.max_split_size_bytes, 50 * MIB);
        let once = AllocatorConfig::parse("max_split_size_mb:40").unwrap();
        let mut twice = once.clone();
        twice.update("max_split_size_mb:40").unwrap();
        assert_eq!(once, twice);
    }

    #[test]
    fn newer_options_need_the_newer_release() {
        let mut config = AllocatorConfig::for_version(TorchVersion::V2_15);
        let settings = "throw_on_cudamalloc_oom:True,expandable_segments_reserve:2G,expandable_segments_reserve_by_class:[a:1,b:2G],expandable_segments:True";
        config.update(settings).unwrap();
        assert!(config.throw_on_oom && config.expandable_segments);
        assert_eq!(config.expandable_reserve, Some(ExpandableReserve::Bytes(2 << 30)));
        config.update("expandable_segments_reserve:-1").unwrap();
        assert_eq!(config.expandable_reserve, Some(ExpandableReserve::Bytes(2 << 30)));
    }
}
