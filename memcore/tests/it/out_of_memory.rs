//! Out-of-memory reports when free memory exists: fragmentation, the need of the whole run, limits of a device.

use std::sync::Arc;

use memcore::Error;
use memcore::backend::{DeviceProfile, Faulty, FaultyCall, Meta};
use memcore::memory::{Allocator, Caching, Ledger, Needs, OutOfMemory, Stream, Verdict};

const MIB: u64 = 1 << 20;

#[test]
fn fragmented_is_what_would_fit_in_one_piece_and_only_where_the_whole_run_does() {
    // Pieces of segments that are still in use cannot be returned: fragmented.
    let device = Arc::new(Meta::new(DeviceProfile { total_bytes: 80 * MIB, ..DeviceProfile::default() }));
    let mut allocator = Caching::with_defaults(device.clone());
    let mut log = |_| {};
    let blocks: Vec<_> = (0..8).map(|_| allocator.allocate(8 * MIB, Stream::DEFAULT, &mut log).unwrap()).collect();
    blocks.iter().skip(1).step_by(2).for_each(|block| allocator.free(block.id, &mut log));
    let error = allocator.allocate(30 * MIB, Stream::DEFAULT, &mut log).unwrap_err();
    assert!(matches!(error, Error::DeviceFull { .. }));
    let report = OutOfMemory::new(30 * MIB, &allocator, &Ledger::new(), &*device);
    assert_eq!(report.verdict, Verdict::Fragmented, "{report}");
    assert_eq!(report.largest_fit_bytes, 12 * MIB, "what is left of a segment of 20");

    // Fragmented at the moment of the failure; but full if the whole run needs more memory than exists. Otherwise the missing bytes are reserved bytes.
    assert_eq!(report.missing_bytes(), None);
    assert!(report.to_string().contains("40.0 % in use"), "{report}");
    let judged = |allocated_bytes, reserved_bytes| report.clone().judged_by(Needs { allocated_bytes, reserved_bytes });
    let full = judged(320 * MIB, 340 * MIB);
    assert_eq!((full.verdict, full.missing_bytes()), (Verdict::Full, Some(260 * MIB)));
    assert!(!full.to_string().contains("fragmented") && full.to_string().contains("260.00 MiB"), "{full}");
    let fragmented = judged(80 * MIB, 100 * MIB);
    assert_eq!((fragmented.verdict, fragmented.missing_bytes()), (Verdict::Fragmented, Some(20 * MIB)));
    let moment = OutOfMemory { verdict: Verdict::Full, ..report.clone() };
    let cut = moment.clone().judged_by(Needs { allocated_bytes: 80 * MIB, reserved_bytes: 100 * MIB });
    assert_eq!(cut.verdict, Verdict::Fragmented, "only how memory is cut prevents it");
    let enough = moment.judged_by(Needs { allocated_bytes: 60 * MIB, reserved_bytes: 80 * MIB });
    assert_eq!((enough.verdict, enough.missing_bytes()), (Verdict::Full, None), "the run is not the reason");
}

#[test]
fn what_is_free_and_not_given_is_refused_not_fragmented() {
    let device = Arc::new(Faulty::new(Meta::default(), FaultyCall::AllocSegment, 0, 9));
    let mut allocator = Caching::with_defaults(device.clone());
    allocator.allocate(30 * MIB, Stream::DEFAULT, &mut |_| {}).unwrap_err();
    let report = OutOfMemory::new(30 * MIB, &allocator, &Ledger::new(), &*device);
    assert_eq!(report.verdict, Verdict::Refused, "{report}");
    assert!(report.to_string().contains("refused though it is free"), "{report}");
    let judged = report.judged_by(Needs { allocated_bytes: 30 * MIB, reserved_bytes: 30 * MIB });
    assert_eq!((judged.verdict, judged.missing_bytes()), (Verdict::Refused, None));
}
