//! Order of the passes on each device.

use lab_base::named;

/// When a device runs the forward and backward passes of the micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Every forward pass, then every backward pass (Huang et al., *GPipe*, 2019): the activations of all micro-batches are held at once.
    Gpipe,
    /// As many forward passes as it takes to reach the last stage, then a backward pass for each further one (Narayanan et al., *PipeDream*, 2019): a
    /// stage holds the activations of as many micro-batches as there are stages from it to the last.
    #[default]
    OneForwardOneBackward,
}

/// A pass of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Forward through one stage.
    Forward {
        /// The stage.
        stage: usize,
    },
    /// Backward through all stages, from the last to the first. Each stage's own order is the same as if it did only its part.
    Backward,
}

/// One pass of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Number of the micro-batch.
    pub micro: usize,
    /// The pass.
    pub pass: Pass,
}

named!(Schedule, "order of passes", { Gpipe = "gpipe", OneForwardOneBackward = "1f1b" });

impl Schedule {
    /// The most micro-batches whose activations stage `stage` of `stages` holds at once.
    pub fn in_flight(self, stage: usize, stages: usize, micro_batches: usize) -> usize {
        match self {
            Self::Gpipe => micro_batches,
            Self::OneForwardOneBackward => micro_batches.min(stages.saturating_sub(stage)),
        }
    }

    /// Returns all passes of a step, each after the passes that it depends on.
    pub fn order(self, stages: usize, micro_batches: usize) -> Vec<Work> {
        let mut order = Vec::with_capacity((stages + 1) * micro_batches);
        // Number of forward passes done, by stage.
        let mut done = vec![0; stages];
        for micro in 0..micro_batches {
            let ahead = |stage: usize| match self {
                Self::Gpipe => micro_batches,
                Self::OneForwardOneBackward => micro_batches.min(micro + stages - stage),
            };
            // A micro-batch goes as far as it may before the next one starts, so that few results wait between stages.
            for next in micro..ahead(0) {
                for (stage, done) in done.iter_mut().enumerate() {
                    if *done == next && next < ahead(stage) {
                        order.push(Work { micro: next, pass: Pass::Forward { stage } });
                        *done += 1;
                    }
                }
            }
            order.push(Work { micro, pass: Pass::Backward });
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Order of stage `stage` alone: `F0 F1 B0 …`.
    fn own(schedule: Schedule, stage: usize, stages: usize, micro_batches: usize) -> String {
        let words = schedule.order(stages, micro_batches).into_iter().filter_map(|work| match work.pass {
            Pass::Forward { stage: at } => (at == stage).then(|| format!("F{}", work.micro)),
            Pass::Backward => Some(format!("B{}", work.micro)),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_stage_has_the_order_of_the_papers() {
        let one = Schedule::OneForwardOneBackward;
        assert_eq!(own(Schedule::Gpipe, 0, 2, 3), "F0 F1 F2 B0 B1 B2");
        assert_eq!(own(Schedule::Gpipe, 1, 2, 3), "F0 F1 F2 B0 B1 B2");
        assert_eq!(own(one, 0, 4, 6), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
        assert_eq!(own(one, 2, 4, 6), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
        assert_eq!(own(one, 3, 4, 6), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
        assert_eq!(own(one, 0, 1, 2), "F0 B0 F1 B1", "one stage: gradient accumulation");
        assert_eq!(own(one, 0, 4, 2), "F0 F1 B0 B1", "fewer micro-batches than stages");
    }

    #[test]
    fn what_a_pass_needs_comes_before_it_and_in_flight_is_what_is_held() {
        for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
            for (stages, micro_batches) in [(1, 1), (1, 4), (2, 1), (3, 2), (3, 7), (5, 5), (4, 9)] {
                let (mut forward, mut held) = (vec![0; stages], vec![0; stages]);
                let mut most = vec![0; stages];
                let mut backward = 0;
                for Work { micro, pass } in schedule.order(stages, micro_batches) {
                    match pass {
                        Pass::Forward { stage } => {
                            assert_eq!(micro, forward[stage]);
                            assert!(stage == 0 || forward[stage - 1] > micro, "its input is there");
                            forward[stage] += 1;
                            held[stage] += 1;
                            most[stage] = most[stage].max(held[stage]);
                        }
                        Pass::Backward => {
                            assert_eq!(micro, backward);
                            assert!(forward[stages - 1] > micro, "its loss is there");
                            backward += 1;
                            held.iter_mut().for_each(|held| *held -= 1);
                        }
                    }
                }
                assert_eq!((backward, held.iter().sum::<i32>()), (micro_batches, 0));
                for (stage, &most) in most.iter().enumerate() {
                    assert_eq!(most as usize, schedule.in_flight(stage, stages, micro_batches), "{schedule:?} {stage}");
                }
            }
        }
    }
}
