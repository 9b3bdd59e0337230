//! The filter that hands some system calls to the keeper. Every process that a filtered one starts has it, too.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::{c_long, sock_filter, sock_fprog};

use super::system::checked;

/// What a filter does with a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The keeper answers.
    Ask,
    /// The keeper answers if the argument of this number, from 0 on, is not 0.
    AskIfGiven(u32),
    /// The keeper answers if the argument has one of these flags.
    AskIfAny(u32, u32),
    /// There is no such call.
    Missing,
    /// The call fails with this number.
    Fails(i32),
    /// The call fails with the last number if the argument is this value, in 32 bits.
    FailsIfIs(u32, u32, i32),
}

/// The architecture whose numbers of calls are meant. Calls of others are let through.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// `TIOCSTI` and `TIOCLINUX`.
const TYPES: [u32; 2] = [0x5412, 0x541c];

/// Returns the calls that a run's keeper answers whatever protects the user's files.
pub(super) fn rules(offline: bool) -> Vec<(c_long, Rule)> {
    let mut rules = vec![(libc::SYS_connect, Rule::Ask), (libc::SYS_sendto, Rule::AskIfGiven(4))];
    // What is typed into a terminal for its user is a command of that user's.
    rules.extend(TYPES.map(|request| (libc::SYS_ioctl, Rule::FailsIfIs(1, request, libc::EPERM))));
    if offline {
        // Messages carry their address in memory, and calls through a ring are not seen.
        rules.push((libc::SYS_sendmsg, Rule::Ask));
        rules.push((libc::SYS_sendmmsg, Rule::Ask));
        rules.push((libc::SYS_io_uring_setup, Rule::Missing));
    }
    rules
}

/// Returns the calls that overlays need help with.
pub(super) fn renames_and_links() -> Vec<(c_long, Rule)> {
    vec![
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_rename, Rule::Ask),
        (libc::SYS_renameat, Rule::Ask),
        (libc::SYS_renameat2, Rule::Ask),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_link, Rule::Ask),
        (libc::SYS_linkat, Rule::Ask),
    ]
}

/// Returns the call by which a file is opened by its number, past all overlays.
pub(super) fn handles() -> [(c_long, Rule); 1] {
    [(libc::SYS_open_by_handle_at, Rule::Fails(libc::EPERM))]
}

/// Puts a filter on this thread, and on all that it starts. If it is strict, there are no calls of other architectures. Returns the descriptor on which the keeper is asked.
pub(super) fn install(rules: &[(c_long, Rule)], strict: bool) -> io::Result<OwnedFd> {
    let mut program = program(rules, strict);
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let listens = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let set = |flags: libc::c_ulong| {
        // SAFETY: the program lives until the call returns, and has the length that is given.
        checked(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) })
    };
    // Before Linux 5.19 a signal may interrupt a call that the keeper is working on. The call is then made again.
    let opened = set(listens | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).or_else(|_| set(listens))?;
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) })
}

/// Offsets in the structure that a program looks at: number, architecture, and the arguments of 8 bytes each.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

/// From this number on, calls are those of another interface on the same processor (x32).
const OTHER_NUMBERS: u32 = 0x4000_0000;

fn program(rules: &[(c_long, Rule)], strict: bool) -> Vec<sock_filter> {
    let step = |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let load = |offset: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    let equal = |value: u32, yes: u8, no: u8| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, yes, no);
    let answer = |value: u32| step(libc::BPF_RET | libc::BPF_K, value, 0, 0);
    let (pass, ask) = (answer(libc::SECCOMP_RET_ALLOW), answer(libc::SECCOMP_RET_USER_NOTIF));
    let fails = |number: i32| answer(libc::SECCOMP_RET_ERRNO | number as u32);
    let above = |value: u32, yes: u8, no: u8| step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, value, yes, no);
    let any = |flags: u32, yes: u8, no: u8| step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, flags, yes, no);
    let of_another = if strict { fails(libc::ENOSYS) } else { pass };
    let mut out = vec![load(ARCH), equal(ARCHITECTURE, 1, 0), of_another];
    out.extend([load(NUMBER), above(OTHER_NUMBERS, 0, 1), of_another]);
    for (number, rule) in rules {
        out.push(load(NUMBER));
        match rule {
            Rule::Ask => out.extend([equal(*number as u32, 0, 1), ask]),
            Rule::Missing => out.extend([equal(*number as u32, 0, 1), fails(libc::ENOSYS)]),
            Rule::Fails(with) => out.extend([equal(*number as u32, 0, 1), fails(*with)]),
            Rule::FailsIfIs(argument, value, with) => {
                let low = load(ARGUMENTS + 8 * argument);
                out.extend([equal(*number as u32, 0, 3), low, equal(*value, 0, 1), fails(*with)]);
            }
            Rule::AskIfAny(argument, flags) => {
                let low = load(ARGUMENTS + 8 * argument);
                out.extend([equal(*number as u32, 0, 3), low, any(*flags, 0, 1), ask]);
            }
            Rule::AskIfGiven(argument) => {
                let (low, high) = (ARGUMENTS + 8 * argument, ARGUMENTS + 8 * argument + 4);
                out.extend([equal(*number as u32, 0, 5), load(low), equal(0, 0, 2), load(high), equal(0, 1, 0), ask]);
            }
        }
    }
    out.push(pass);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the system does.
    fn run(program: &[sock_filter], number: u32, arch: u32, arguments: [u64; 6]) -> u32 {
        let mut data = [number.to_ne_bytes(), arch.to_ne_bytes(), [0; 4], [0; 4]].concat();
        data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
        let (mut at, mut held) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            match u32::from(step.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    held = u32::from_ne_bytes(data[step.k as usize..][..4].try_into().unwrap());
                }
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if held == step.k { step.jt } else { step.jf });
                }
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => {
                    at += usize::from(if held >= step.k { step.jt } else { step.jf });
                }
                code if code == libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K => {
                    at += usize::from(if held & step.k != 0 { step.jt } else { step.jf });
                }
                _ => return step.k,
            }
        }
    }

    #[test]
    fn calls_of_the_list_are_asked_for_and_no_others() {
        let flags = Rule::AskIfAny(2, 0b1001);
        let rules = [
            (7, Rule::Ask),
            (8, Rule::AskIfGiven(4)),
            (9, Rule::Missing),
            (10, flags),
            (11, Rule::Fails(libc::EPERM)),
            (12, Rule::FailsIfIs(1, 77, libc::EPERM)),
        ];
        let strict = program(&rules, true);
        let program = program(&rules, false);
        let of = |number, arguments| run(&program, number, ARCHITECTURE, arguments);
        let (none, low, high) = ([0; 6], [0, 0, 0, 0, 5, 0], [0, 0, 0, 0, 5 << 32, 0]);
        assert_eq!((of(7, none), of(6, none)), (libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW));
        assert_eq!((of(8, none), of(8, low)), (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF));
        assert_eq!(of(8, high), libc::SECCOMP_RET_USER_NOTIF, "an address above 4 GiB");
        assert_eq!(of(9, none), libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
        let (missing, forbidden) =
            (libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
        assert_eq!(of(10, [0, 0, 0b0100, 0, 0, 0]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(of(10, [0, 0, 0b1100, 0, 0, 0]), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(
            (of(11, none), of(12, none), of(12, [0, 77, 0, 0, 0, 0])),
            (forbidden, libc::SECCOMP_RET_ALLOW, forbidden)
        );
        assert_eq!(run(&program, 7, 1, none), libc::SECCOMP_RET_ALLOW, "of another architecture");
        assert_eq!(run(&program, OTHER_NUMBERS + 7, ARCHITECTURE, none), libc::SECCOMP_RET_ALLOW);
        assert_eq!(run(&strict, 7, 1, none), missing);
        assert_eq!(run(&strict, OTHER_NUMBERS + 7, ARCHITECTURE, none), missing);
        assert_eq!(run(&strict, 7, ARCHITECTURE, none), libc::SECCOMP_RET_USER_NOTIF);
    }
}
