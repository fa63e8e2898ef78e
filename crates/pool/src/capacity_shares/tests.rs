//! The book, spoken to directly.

use super::*;

const BATCH: u64 = 64 << 10;
const A: MemberIdx = MemberIdx(1);
const B: MemberIdx = MemberIdx(2);
const GIVEN: [u8; SECRET_LEN] = [0; SECRET_LEN];
const ONE: ExtentIdx = ExtentIdx(1);

impl<F: Clone> CapacityShares<F> {
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

fn capacity_shares() -> CapacityShares<()> {
    let mut capacity_shares =
        CapacityShares::new(Capacity { total: 4 * BATCH, member_quota: 3 * BATCH, batch: BATCH });
    capacity_shares.give_up_early();
    capacity_shares.join(A, GIVEN, (), false);
    capacity_shares.join(B, GIVEN, (), false);
    capacity_shares
}

fn say(capacity_shares: &mut CapacityShares<()>, from: MemberIdx, message: PoolMessage) -> Vec<(u32, u32)> {
    let fds = vec![(); pool_kind::fd_count(message.kind.get())];
    capacity_shares.hear(from, &message, fds).unwrap();
    capacity_shares.take_sayings().iter().map(|said| (said.to.0, said.message.kind.get())).collect()
}

fn new(kind: u32) -> PoolMessage {
    PoolMessage::new(kind)
}

fn with_extent() -> CapacityShares<()> {
    let mut capacity_shares = capacity_shares();
    assert_eq!(say(&mut capacity_shares, A, new(pool_kind::NEED).of(BATCH)), [(1, pool_kind::GRANT)]);
    let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
    assert_eq!(say(&mut capacity_shares, A, extent), [(1, pool_kind::EXTENT_OK)]);
    capacity_shares
}

#[test]
fn quota_and_capacity_are_kept_and_others_asked_for_what_they_can_spare() {
    let mut capacity_shares = capacity_shares();
    let need = |amount| new(pool_kind::NEED).of(amount);
    for _ in 0..3 {
        assert_eq!(say(&mut capacity_shares, A, need(BATCH)), [(1, pool_kind::GRANT)]);
    }
    capacity_shares.hear(A, &need(BATCH), Vec::new()).unwrap();
    assert_eq!(capacity_shares.take_sayings()[0].message.reason.get(), pool_reason::QUOTA);
    assert_eq!(say(&mut capacity_shares, B, need(BATCH)), [(2, pool_kind::GRANT)]);
    assert_eq!(say(&mut capacity_shares, B, need(BATCH)), [(2, pool_kind::DENY), (1, pool_kind::TAKE_BACK)]);
    assert_eq!(say(&mut capacity_shares, A, new(pool_kind::RETURNED).of(BATCH)), []);
    assert_eq!(say(&mut capacity_shares, B, need(BATCH)), [(2, pool_kind::GRANT)]);
    capacity_shares.leave(A);
    capacity_shares.leave(B);
    assert_eq!(capacity_shares.used(), 0);
}

/// Has a reader map the extent that A has.
fn map_all_the_way(capacity_shares: &mut CapacityShares<()>, reader: MemberIdx) {
    let (r, about_it, about_reader) =
        (reader.0, |kind| new(kind).about(A, ONE), |kind| new(kind).about(reader, ONE));
    assert_eq!(say(capacity_shares, reader, about_it(pool_kind::MAP)), [(1, pool_kind::WANTED)]);
    assert_eq!(say(capacity_shares, A, about_reader(pool_kind::GIVE)), [(r, pool_kind::MAPPED)]);
    assert_eq!(say(capacity_shares, reader, about_it(pool_kind::ROW).row(7)), [(1, pool_kind::ROW)]);
    assert_eq!(say(capacity_shares, A, about_reader(pool_kind::ROW_OK).row(6)), [], "of an earlier row");
    assert_eq!(say(capacity_shares, A, about_reader(pool_kind::ROW_OK).row(7)), [(r, pool_kind::WATCHED)]);
}

#[test]
fn what_a_dead_owner_left_is_free_when_nobody_maps_it() {
    let mut capacity_shares = with_extent();
    map_all_the_way(&mut capacity_shares, B);
    capacity_shares.leave(A);
    assert_eq!(capacity_shares.take_sayings()[0].message.kind.get(), pool_kind::LEFT);
    assert_eq!(capacity_shares.used(), BATCH, "it is still mapped");
    assert_eq!(say(&mut capacity_shares, B, new(pool_kind::UNMAPPED).about(A, ONE)), []);
    assert_eq!(capacity_shares.used(), 0);
    assert_eq!(say(&mut capacity_shares, B, new(pool_kind::MAP).about(A, ONE)), [(2, pool_kind::MAP_FAILED)]);
}

#[test]
fn readers_that_die_let_go() {
    for owner_first in [true, false] {
        let mut capacity_shares = with_extent();
        map_all_the_way(&mut capacity_shares, B);
        if owner_first {
            capacity_shares.leave(A);
        }
        capacity_shares.leave(B);
        if !owner_first {
            say(&mut capacity_shares, A, new(pool_kind::RETURNED).about(MemberIdx(0), ONE).of(BATCH));
        }
        assert_eq!(capacity_shares.used(), 0);
    }
}

#[test]
fn a_successor_learns_what_there_is_in_any_order() {
    let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
    let present = new(pool_kind::PRESENT).about(A, ONE).of(BATCH);
    for owner_first in [true, false] {
        let capacity = Capacity { total: BATCH, member_quota: BATCH, batch: BATCH };
        let mut capacity_shares = CapacityShares::new(capacity);
        capacity_shares.join(A, GIVEN, (), true);
        capacity_shares.join(B, GIVEN, (), true);
        let messages = if owner_first { [(A, extent), (B, present)] } else { [(B, present), (A, extent)] };
        for (from, message) in messages {
            say(&mut capacity_shares, from, message);
        }
        assert_eq!(capacity_shares.used(), BATCH);
        capacity_shares.leave(A);
        assert_eq!((capacity_shares.used(), capacity_shares.take_sayings().len()), (BATCH, 1));
        capacity_shares.leave(B);
        assert_eq!(capacity_shares.used(), 0);
    }
}

#[test]
fn a_successor_answers_who_asks_before_the_owner_is_back() {
    let capacity = Capacity { total: BATCH, member_quota: BATCH, batch: BATCH };
    let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
    let map = |idx| new(pool_kind::MAP).about(A, ExtentIdx(idx));
    let mut capacity_shares = CapacityShares::new(capacity);
    capacity_shares.join(B, GIVEN, (), true);
    assert_eq!(say(&mut capacity_shares, B, map(1)), []);
    assert_eq!(say(&mut capacity_shares, B, map(2)), []);
    assert!(capacity_shares.is_early());
    capacity_shares.join(A, GIVEN, (), true);
    assert_eq!(say(&mut capacity_shares, A, extent), [(1, pool_kind::EXTENT_OK), (1, pool_kind::WANTED)]);
    capacity_shares.give_up_early();
    let refused = capacity_shares.take_sayings();
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (refused[0].message.kind.get(), refused[0].message.extent()),
        (pool_kind::MAP_FAILED, ExtentIdx(2))
    );
    assert_eq!(say(&mut capacity_shares, B, map(2)), [(2, pool_kind::MAP_FAILED)], "from now on at once");
    // A member that has left isn't told.
    let mut capacity_shares = CapacityShares::new(capacity);
    capacity_shares.join(B, GIVEN, (), true);
    assert_eq!(say(&mut capacity_shares, B, map(1)), []);
    capacity_shares.leave(B);
    capacity_shares.give_up_early();
    assert!(capacity_shares.take_sayings().is_empty());
}

#[test]
fn what_no_member_says_is_a_violation() {
    let mut capacity_shares = with_extent();
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
        assert!(capacity_shares.hear(A, &message, Vec::new()).is_err(), "{message:?}");
    }
    for kind in 0..100 {
        let excess = vec![(); pool_kind::fd_count(kind) + 1];
        let refused = capacity_shares.hear(A, &new(kind).about(B, ONE).of(BATCH), excess);
        assert!(refused.is_err(), "{kind} with a descriptor too many");
        assert!(capacity_shares.take_sayings().is_empty(), "nothing of it is passed on");
    }
    assert!(capacity_shares.hear(MemberIdx(9), &new(pool_kind::NEED).of(BATCH), Vec::new()).is_err());
    assert_eq!(capacity_shares.used(), BATCH, "nothing of it counts");
}

/// P1: a lost connection is no end. What the member has, maps and granted stays, and comes back with it.
#[test]
fn a_member_whose_connection_is_lost_keeps_all_that_it_has() {
    let mut capacity_shares = with_extent();
    map_all_the_way(&mut capacity_shares, B);
    assert!(capacity_shares.lose(A) && capacity_shares.lose(B));
    assert!(capacity_shares.take_sayings().is_empty(), "nobody is told that anybody is gone");
    assert_eq!(capacity_shares.used(), BATCH);
    let standings = |capacity_shares: &CapacityShares<()>| capacity_shares.standings().collect::<Vec<_>>();
    assert_eq!(
        standings(&capacity_shares),
        [(A, BATCH, BATCH, standing::CUT_OFF), (B, 0, 0, standing::CUT_OFF)]
    );
    capacity_shares.join(B, GIVEN, (), true);
    assert_eq!(standings(&capacity_shares)[1], (B, 0, 0, standing::RETURNING));
    assert_eq!(say(&mut capacity_shares, B, new(pool_kind::PRESENT).about(A, ONE).of(BATCH)), []);
    assert_eq!(say(&mut capacity_shares, B, new(pool_kind::RESUMED)), []);
    assert_eq!(
        say(&mut capacity_shares, B, new(pool_kind::MAP).about(A, ONE)),
        [],
        "until its owner is back"
    );
    capacity_shares.join(A, GIVEN, (), true);
    let extent = new(pool_kind::EXTENT).about(MemberIdx(0), ONE).of(BATCH);
    assert_eq!(say(&mut capacity_shares, A, extent), [(1, pool_kind::EXTENT_OK), (1, pool_kind::WANTED)]);
    assert_eq!(say(&mut capacity_shares, A, new(pool_kind::RESUMED)), []);
    assert_eq!(capacity_shares.used(), BATCH);
    // What is not stated is gone.
    capacity_shares.lose(A);
    capacity_shares.join(A, GIVEN, (), true);
    assert_eq!(
        say(&mut capacity_shares, A, new(pool_kind::RESUMED)),
        [(2, pool_kind::MAP_FAILED), (2, pool_kind::DROP)]
    );
    capacity_shares.lose(B);
    capacity_shares.join(B, GIVEN, (), true);
    say(&mut capacity_shares, B, new(pool_kind::RESUMED));
    assert_eq!(capacity_shares.used(), 0);
    // Nobody waits for long.
    let mut capacity_shares = with_extent();
    capacity_shares.lose(A);
    assert_eq!(say(&mut capacity_shares, B, new(pool_kind::MAP).about(A, ONE)), []);
    capacity_shares.give_up(A);
    assert_eq!(capacity_shares.take_sayings().len(), 1);
    assert_eq!(say(&mut capacity_shares, B, new(pool_kind::MAP).about(A, ONE)), [(2, pool_kind::MAP_FAILED)]);
}

/// H3: claims are believed from members that come back, while others may, and as far as their quota.
#[test]
fn claims_do_not_fill_the_pool() {
    let capacity = Capacity { total: 100 * BATCH, member_quota: 3 * BATCH, batch: BATCH };
    let mut capacity_shares = CapacityShares::new(capacity);
    capacity_shares.join(A, GIVEN, (), true);
    for idx in 1..10_000 {
        say(&mut capacity_shares, A, new(pool_kind::PRESENT).about(MemberIdx(9), ExtentIdx(idx)).of(BATCH));
    }
    say(&mut capacity_shares, A, new(pool_kind::PRESENT).about(MemberIdx(9), ExtentIdx(77)).of(1 << 30));
    assert_eq!((capacity_shares.used(), capacity_shares.lingering.len()), (3 * BATCH, 3));
    capacity_shares.join(B, GIVEN, (), false);
    assert!(capacity_shares.hear(B, &new(pool_kind::PRESENT).about(A, ONE).of(BATCH), Vec::new()).is_err());
    capacity_shares.give_up_early();
    capacity_shares.join(MemberIdx(3), GIVEN, (), true);
    say(
        &mut capacity_shares,
        MemberIdx(3),
        new(pool_kind::PRESENT).about(MemberIdx(9), ExtentIdx(500)).of(BATCH),
    );
    assert_eq!(capacity_shares.used(), 3 * BATCH, "too late");
    capacity_shares.leave(A);
    assert_eq!(capacity_shares.used(), 0);
}

/// H4, P6: what others make the coordinator say to a member that doesn't answer is bounded.
#[test]
fn an_owner_that_does_not_answer_is_asked_a_bounded_number_of_times() {
    let capacity = Capacity { total: 1000 * BATCH, member_quota: 500 * BATCH, batch: BATCH };
    let mut capacity_shares = CapacityShares::new(capacity);
    capacity_shares.join(A, GIVEN, (), true);
    for idx in 1..=400 {
        say(&mut capacity_shares, A, new(pool_kind::EXTENT).about(MemberIdx(0), ExtentIdx(idx)).of(BATCH));
    }
    let mut said = Vec::new();
    for reader in 10..30 {
        capacity_shares.join(MemberIdx(reader), GIVEN, (), false);
        for idx in (1..=400).chain(1..=400) {
            let map = new(pool_kind::MAP).about(A, ExtentIdx(idx));
            capacity_shares.hear(MemberIdx(reader), &map, Vec::new()).unwrap();
            said.extend(capacity_shares.take_sayings());
        }
    }
    let wanted = said.iter().filter(|said| said.to == A).count();
    assert_eq!(wanted, 32, "and not one more before it answers");
    assert!(capacity_shares.mappings.len() <= 20 * 256);
    say(&mut capacity_shares, A, new(pool_kind::GIVE).about(MemberIdx(10), ExtentIdx(1)));
    // Rows are what costs descriptors.
    let mut shown = 0;
    for idx in 1..=400 {
        let give = new(pool_kind::GIVE).about(MemberIdx(10), ExtentIdx(idx));
        capacity_shares.hear(A, &give, vec![()]).unwrap();
        let row = new(pool_kind::ROW).about(A, ExtentIdx(idx)).row(u64::from(idx));
        capacity_shares.hear(MemberIdx(10), &row, vec![()]).unwrap();
        let sayings = capacity_shares.take_sayings();
        shown += sayings.iter().filter(|said| said.message.kind.get() == pool_kind::ROW).count();
    }
    assert!((1..=64).contains(&shown), "{shown} rows wait for it");
}

/// Found by the simulation: such a reader was kept waiting for good.
#[test]
fn a_reader_that_could_not_map_what_it_was_given_asks_anew() {
    let mut capacity_shares = with_extent();
    let (about_it, about_reader) = (|kind| new(kind).about(A, ONE), |kind| new(kind).about(B, ONE));
    assert_eq!(say(&mut capacity_shares, B, about_it(pool_kind::MAP)), [(1, pool_kind::WANTED)]);
    assert_eq!(say(&mut capacity_shares, A, about_reader(pool_kind::GIVE)), [(2, pool_kind::MAPPED)]);
    assert_eq!(say(&mut capacity_shares, B, about_it(pool_kind::UNMAPPED)), []);
    map_all_the_way(&mut capacity_shares, B);
    capacity_shares.audit().unwrap();
}
