//! One system call fails in a coordinator, a server or a client of a pool: what it was for comes about all the same, or ends
//! with an error in words, and is made good by the next try. Nothing hangs, nobody else notices, and in the end payloads
//! go by ref.
//!
//! The process in which a call fails is this test binary again.

mod party;
mod scene;

use scene::{Case, Target};
use tollfree_testkit::{Injector, Operation, Role, TimeLimit};

/// Beyond this many calls of a kind, those that follow are of the same sort: doorbells and wake-ups.
const NTH_MAX: u64 = 40;

#[test]
#[ignore = "not a test: what the processes do that the tests start"]
fn as_child() {
    if let Some(role) = Role::of_this_process() {
        party::run(&role);
    }
}

/// Whether this machine lets a test have calls fail; says so if not.
fn is_possible() -> bool {
    let why_not = if Injector::IS_POSSIBLE { scene::why_not() } else { Some("another processor".to_owned()) };
    if let Some(why) = &why_not {
        eprintln!("skipped: no system call can be made to fail here: {why}");
    }
    why_not.is_none()
}

#[test]
fn a_call_that_fails_once_costs_its_maker_an_error_at_most() {
    let _limit = TimeLimit::seconds(1200);
    if !is_possible() {
        return;
    }
    let mut happened_count = 0;
    for target in Target::ALL {
        for (operation, nth) in target.sample() {
            for error in operation.errors() {
                let case = Case { target, operation: *operation, nth: *nth, error: *error };
                happened_count += u32::from(case.run());
            }
        }
    }
    assert!(happened_count >= 20, "only {happened_count} calls failed");
}

#[test]
#[ignore = "takes many minutes: `make nightly` runs it"]
fn each_call_that_fails_costs_its_maker_an_error_at_most() {
    let _limit = TimeLimit::seconds(3600);
    if !is_possible() {
        return;
    }
    let mut wrong = Vec::new();
    for target in Target::ALL {
        for operation in Operation::ALL {
            for error in operation.errors() {
                let mut happens = |nth: &u64| {
                    let case = Case { target, operation, nth: *nth, error: *error };
                    std::panic::catch_unwind(|| case.run()).unwrap_or_else(|_| {
                        wrong.push(case);
                        true
                    })
                };
                let failed_count = (1..NTH_MAX).take_while(&mut happens).count();
                println!("{target:?}, {operation:?}, {error:?}: {failed_count} calls failed");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
