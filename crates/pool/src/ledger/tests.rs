//! The book, spoken to directly.

use super::*;

const BATCH: u64 = 64 << 10;
const A: MemberIdx = MemberIdx(1);
const B: MemberIdx = MemberIdx(2);
const GIVEN: [u8; SECRET_LEN] = [0; SECRET_LEN];
const ONE: ExtentIdx = ExtentIdx(1);

impl<F: Clone> Ledger<F> {
    /// Whether all sums are right; bytes used, and in all.
    pub(crate) fn audit(&self) -> Result<(u64, u64), String> {
        let mut used = 0;
        for (idx, member) in &self.members {
            let made: u64 = member.extents.values().map(|extent| extent.len).sum();
            if made > member.granted || member.granted > self.capacity.member_quota {
                return Err(format!("{} has made {made} of {} granted", idx.0, member.granted));
            }
            let owed = self.mappings.iter().filter(|((owner, _, _), stage)| owner == idx && stage.is_owed());
            if owed.count() != member.owes {
                return Err(format!("{} owes {} answers, as it is said", idx.0, member.owes));
            }
            used += member.granted;
        }
        for (key, lingering) in &self.lingering {
            if self.members.get(&key.0).is_some_and(|owner| owner.extents.contains_key(&key.1)) {
                return Err(format!("extent {} of {} lingers and is there", key.1.0, key.0.0));
            }
            used += lingering.len;
        }
        if used == self.used {
            Ok((used, self.capacity.total))
        } else {
            Err(format!("{used}, not {}", self.used))
        }
    }
}

fn ledger() -> Ledger<()> {
    let mut ledger = Ledger::new(Capacity { total: 4 * BATCH, member_quota: 3 * BATCH, batch: BATCH });
    ledger.give_up_early();
    ledger.join(A, GIVEN, (), false);
    ledger.join(B, GIVEN, (), false);
    ledger
}

fn say(ledger: &mut Ledger<()>, from: MemberIdx, message: PoolMessage) -> Vec<(u32, u32)> {
    let fds = vec![(); pool_kind::fd_count(message.kind.get())];
    ledger.hear(from, &message, fds).unwrap();
    ledger.take_sayings().iter().map(|said| (said.to.0, said.message.kind.get())).collect()
}

fn new(kind: u32) -> PoolMessage {
    PoolMessage::new(kind)
}

fn with_extent() -> Ledger<()> {
    let mut ledger = ledger();
    assert_eq!(say(&mut ledger, A, new(pool_kind::NEED).of(BATCH)), [(1, pool_kind::GRANT)]);
    let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
    assert_eq!(say(&mut ledger, A, extent), [(1, pool_kind::EXTENT_OK)]);
    ledger
}

#[test]
fn quota_and_capacity_are_kept_and_others_asked_for_what_they_can_spare() {
    let mut ledger = ledger();
    let need = |amount| new(pool_kind::NEED).of(amount);
    for _ in 0..3 {
        assert_eq!(say(&mut ledger, A, need(BATCH)), [(1, pool_kind::GRANT)]);
    }
    ledger.hear(A, &need(BATCH), Vec::new()).unwrap();
    assert_eq!(ledger.take_sayings()[0].message.reason.get(), pool_reason::QUOTA);
    assert_eq!(say(&mut ledger, B, need(BATCH)), [(2, pool_kind::GRANT)]);
    assert_eq!(say(&mut ledger, B, need(BATCH)), [(2, pool_kind::DENY), (1, pool_kind::TAKE_BACK)]);
    assert_eq!(say(&mut ledger, A, new(pool_kind::RETURNED).of(BATCH)), []);
    assert_eq!(say(&mut ledger, B, need(BATCH)), [(2, pool_kind::GRANT)]);
    ledger.leave(A);
    ledger.leave(B);
    assert_eq!(ledger.used(), 0);
}

/// Has a reader map the extent that A has.
fn map_all_the_way(ledger: &mut Ledger<()>, reader: MemberIdx) {
    let (r, about_it, about_reader) =
        (reader.0, |kind| new(kind).about(A, ONE), |kind| new(kind).about(reader, ONE));
    assert_eq!(say(ledger, reader, about_it(pool_kind::MAP)), [(1, pool_kind::WANTED)]);
    assert_eq!(say(ledger, A, about_reader(pool_kind::GIVE)), [(r, pool_kind::MAPPED)]);
    assert_eq!(say(ledger, reader, about_it(pool_kind::ROW).row(7)), [(1, pool_kind::ROW)]);
    assert_eq!(say(ledger, A, about_reader(pool_kind::ROW_OK).row(6)), [], "of an earlier row");
    assert_eq!(say(ledger, A, about_reader(pool_kind::ROW_OK).row(7)), [(r, pool_kind::WATCHED)]);
}

#[test]
fn what_a_dead_owner_left_is_free_when_nobody_maps_it() {
    let mut ledger = with_extent();
    map_all_the_way(&mut ledger, B);
    ledger.leave(A);
    assert_eq!(ledger.take_sayings()[0].message.kind.get(), pool_kind::LEFT);
    assert_eq!(ledger.used(), BATCH, "it is still mapped");
    assert_eq!(say(&mut ledger, B, new(pool_kind::UNMAPPED).about(A, ONE)), []);
    assert_eq!(ledger.used(), 0);
    assert_eq!(say(&mut ledger, B, new(pool_kind::MAP).about(A, ONE)), [(2, pool_kind::MAP_FAILED)]);
}

#[test]
fn readers_that_die_let_go() {
    for owner_first in [true, false] {
        let mut ledger = with_extent();
        map_all_the_way(&mut ledger, B);
        if owner_first {
            ledger.leave(A);
        }
        ledger.leave(B);
        if !owner_first {
            say(&mut ledger, A, new(pool_kind::RETURNED).about(MemberIdx(0), ONE).of(BATCH));
        }
        assert_eq!(ledger.used(), 0);
    }
}

#[test]
fn a_successor_learns_what_there_is_in_any_order() {
    let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
    let present = new(pool_kind::PRESENT).about(A, ONE).of(BATCH);
    for owner_first in [true, false] {
        let capacity = Capacity { total: BATCH, member_quota: BATCH, batch: BATCH };
        let mut ledger = Ledger::new(capacity);
        ledger.join(A, GIVEN, (), true);
        ledger.join(B, GIVEN, (), true);
        let messages = if owner_first { [(A, extent), (B, present)] } else { [(B, present), (A, extent)] };
        for (from, message) in messages {
            say(&mut ledger, from, message);
        }
        assert_eq!(ledger.used(), BATCH);
        ledger.leave(A);
        assert_eq!((ledger.used(), ledger.take_sayings().len()), (BATCH, 1));
        ledger.leave(B);
        assert_eq!(ledger.used(), 0);
    }
}

#[test]
fn a_successor_answers_who_asks_before_the_owner_is_back() {
    let capacity = Capacity { total: BATCH, member_quota: BATCH, batch: BATCH };
    let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
    let map = |idx| new(pool_kind::MAP).about(A, ExtentIdx(idx));
    let mut ledger = Ledger::new(capacity);
    ledger.join(B, GIVEN, (), true);
    assert_eq!(say(&mut ledger, B, map(1)), []);
    assert_eq!(say(&mut ledger, B, map(2)), []);
    assert!(ledger.is_early());
    ledger.join(A, GIVEN, (), true);
    assert_eq!(say(&mut ledger, A, extent), [(1, pool_kind::EXTENT_OK), (1, pool_kind::WANTED)]);
    ledger.give_up_early();
    let refused = ledger.take_sayings();
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (refused[0].message.kind.get(), refused[0].message.extent()),
        (pool_kind::MAP_FAILED, ExtentIdx(2))
    );
    assert_eq!(say(&mut ledger, B, map(2)), [(2, pool_kind::MAP_FAILED)], "from now on at once");
    // A member that has left isn't told.
    let mut ledger = Ledger::new(capacity);
    ledger.join(B, GIVEN, (), true);
    assert_eq!(say(&mut ledger, B, map(1)), []);
    ledger.leave(B);
    ledger.give_up_early();
    assert!(ledger.take_sayings().is_empty());
}

#[test]
fn what_no_member_says_is_a_violation() {
    let mut ledger = with_extent();
    let wrong = [
        new(pool_kind::WELCOME),
        new(99),
        new(pool_kind::NEED).of(1),
        new(pool_kind::NEED).of(u64::MAX),
        new(pool_kind::EXTENT).about(A, ExtentIdx(2)).of(BATCH),
        new(pool_kind::EXTENT).about(A, ONE).of(BATCH),
        new(pool_kind::RETURNED).of(BATCH),
        new(pool_kind::RETURNED).about(A, ExtentIdx(7)),
        new(pool_kind::PRESENT).about(B, ONE).of(BATCH),
        new(pool_kind::RESUMED),
    ];
    for message in wrong {
        assert!(ledger.hear(A, &message, Vec::new()).is_err(), "{message:?}");
    }
    for kind in 0..100 {
        let excess = vec![(); pool_kind::fd_count(kind) + 1];
        let refused = ledger.hear(A, &new(kind).about(B, ONE).of(BATCH), excess);
        assert!(refused.is_err(), "{kind} with a descriptor too many");
        assert!(ledger.take_sayings().is_empty(), "nothing of it is passed on");
    }
    assert!(ledger.hear(MemberIdx(9), &new(pool_kind::NEED).of(BATCH), Vec::new()).is_err());
    assert_eq!(ledger.used(), BATCH, "nothing of it counts");
}

/// P1: a lost connection is no end. What the member has, maps and granted stays, and comes back with it.
#[test]
fn a_member_whose_connection_is_lost_keeps_all_that_it_has() {
    let mut ledger = with_extent();
    map_all_the_way(&mut ledger, B);
    assert!(ledger.lose(A) && ledger.lose(B));
    assert!(ledger.take_sayings().is_empty(), "nobody is told that anybody is gone");
    assert_eq!(ledger.used(), BATCH);
    let standings = |ledger: &Ledger<()>| ledger.standings().collect::<Vec<_>>();
    assert_eq!(standings(&ledger), [(A, BATCH, BATCH, standing::CUT_OFF), (B, 0, 0, standing::CUT_OFF)]);
    ledger.join(B, GIVEN, (), true);
    assert_eq!(standings(&ledger)[1], (B, 0, 0, standing::RETURNING));
    assert_eq!(say(&mut ledger, B, new(pool_kind::PRESENT).about(A, ONE).of(BATCH)), []);
    assert_eq!(say(&mut ledger, B, new(pool_kind::RESUMED)), []);
    assert_eq!(say(&mut ledger, B, new(pool_kind::MAP).about(A, ONE)), [], "until its owner is back");
    ledger.join(A, GIVEN, (), true);
    let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
    assert_eq!(say(&mut ledger, A, extent), [(1, pool_kind::EXTENT_OK), (1, pool_kind::WANTED)]);
    assert_eq!(say(&mut ledger, A, new(pool_kind::RESUMED)), []);
    assert_eq!(ledger.used(), BATCH);
    // What is not stated is gone.
    ledger.lose(A);
    ledger.join(A, GIVEN, (), true);
    assert_eq!(
        say(&mut ledger, A, new(pool_kind::RESUMED)),
        [(2, pool_kind::MAP_FAILED), (2, pool_kind::DROP)]
    );
    ledger.lose(B);
    ledger.join(B, GIVEN, (), true);
    say(&mut ledger, B, new(pool_kind::RESUMED));
    assert_eq!(ledger.used(), 0);
    // Nobody waits for long.
    let mut ledger = with_extent();
    ledger.lose(A);
    assert_eq!(say(&mut ledger, B, new(pool_kind::MAP).about(A, ONE)), []);
    ledger.give_up(A);
    assert_eq!(ledger.take_sayings().len(), 1);
    assert_eq!(say(&mut ledger, B, new(pool_kind::MAP).about(A, ONE)), [(2, pool_kind::MAP_FAILED)]);
}

/// H3: claims are believed from members that come back, while others may, and as far as their quota.
#[test]
fn claims_do_not_fill_the_pool() {
    let capacity = Capacity { total: 100 * BATCH, member_quota: 3 * BATCH, batch: BATCH };
    let mut ledger = Ledger::new(capacity);
    ledger.join(A, GIVEN, (), true);
    for idx in 1..10_000 {
        say(&mut ledger, A, new(pool_kind::PRESENT).about(MemberIdx(9), ExtentIdx(idx)).of(BATCH));
    }
    say(&mut ledger, A, new(pool_kind::PRESENT).about(MemberIdx(9), ExtentIdx(77)).of(1 << 30));
    assert_eq!((ledger.used(), ledger.lingering.len()), (3 * BATCH, 3));
    ledger.join(B, GIVEN, (), false);
    assert!(ledger.hear(B, &new(pool_kind::PRESENT).about(A, ONE).of(BATCH), Vec::new()).is_err());
    ledger.give_up_early();
    ledger.join(MemberIdx(3), GIVEN, (), true);
    say(&mut ledger, MemberIdx(3), new(pool_kind::PRESENT).about(MemberIdx(9), ExtentIdx(500)).of(BATCH));
    assert_eq!(ledger.used(), 3 * BATCH, "too late");
    ledger.leave(A);
    assert_eq!(ledger.used(), 0);
}

/// H4, P6: what others make the coordinator say to a member that doesn't answer is bounded.
#[test]
fn an_owner_that_does_not_answer_is_asked_a_bounded_number_of_times() {
    let capacity = Capacity { total: 1000 * BATCH, member_quota: 500 * BATCH, batch: BATCH };
    let mut ledger = Ledger::new(capacity);
    ledger.join(A, GIVEN, (), true);
    for idx in 1..=400 {
        say(&mut ledger, A, new(pool_kind::EXTENT).about(MemberIdx(0), ExtentIdx(idx)).of(BATCH));
    }
    let mut said = Vec::new();
    for reader in 10..30 {
        ledger.join(MemberIdx(reader), GIVEN, (), false);
        for idx in (1..=400).chain(1..=400) {
            let map = new(pool_kind::MAP).about(A, ExtentIdx(idx));
            ledger.hear(MemberIdx(reader), &map, Vec::new()).unwrap();
            said.extend(ledger.take_sayings());
        }
    }
    let wanted = said.iter().filter(|said| said.to == A).count();
    assert_eq!(wanted, 32, "and not one more before it answers");
    assert!(ledger.mappings.len() <= 20 * 256);
    say(&mut ledger, A, new(pool_kind::GIVE).about(MemberIdx(10), ExtentIdx(1)));
    // Rows are what costs descriptors.
    let mut shown = 0;
    for idx in 1..=400 {
        let give = new(pool_kind::GIVE).about(MemberIdx(10), ExtentIdx(idx));
        ledger.hear(A, &give, vec![()]).unwrap();
        let row = new(pool_kind::ROW).about(A, ExtentIdx(idx)).row(u64::from(idx));
        ledger.hear(MemberIdx(10), &row, vec![()]).unwrap();
        let sayings = ledger.take_sayings();
        shown += sayings.iter().filter(|said| said.message.kind.get() == pool_kind::ROW).count();
    }
    assert!((1..=64).contains(&shown), "{shown} rows wait for it");
}

/// Found by the simulation: such a reader was kept waiting for good.
#[test]
fn a_reader_that_could_not_map_what_it_was_given_asks_anew() {
    let mut ledger = with_extent();
    let (about_it, about_reader) = (|kind| new(kind).about(A, ONE), |kind| new(kind).about(B, ONE));
    assert_eq!(say(&mut ledger, B, about_it(pool_kind::MAP)), [(1, pool_kind::WANTED)]);
    assert_eq!(say(&mut ledger, A, about_reader(pool_kind::GIVE)), [(2, pool_kind::MAPPED)]);
    assert_eq!(say(&mut ledger, B, about_it(pool_kind::UNMAPPED)), []);
    map_all_the_way(&mut ledger, B);
    ledger.audit().unwrap();
}
