//! Every message of the pool's protocol, said by one who has no right to: to a coordinator and to a member. One row for each kind
//! that `spec/pool.md` names.

use std::hash::Hasher;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};

use tollfree_layout::MemberIdx;
use tollfree_layout::pool::{POOL_MESSAGE_LEN, POOL_VERSION, pool_reason};
use tollfree_pool::Pool;

use super::*;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Nothing, and the connection stays.
    Ignored,
    /// The sender is told this, and the connection stays.
    Told(&'static str),
    /// The same, when somebody else has answered; several may be answered as one.
    ToldOnce(&'static str),
    /// The receiver hangs up, without a word.
    HungUp,
}

use Then::{HungUp, Ignored, Told, ToldOnce};

/// Of each kind: what follows when a member says it to the coordinator about another's extent, out of order, and when the coordinator
/// says it to a member, unasked.
const TABLE: [(&str, Then, Then); 29] = [
    ("JOIN", HungUp, Ignored),
    ("WELCOME", HungUp, Ignored),
    ("REFUSAL", HungUp, Ignored),
    ("NEED", Told("GRANT"), Ignored),
    ("GRANT", HungUp, Told("EXTENT")),
    ("DENY", HungUp, Ignored),
    ("EXTENT", HungUp, Ignored),
    ("EXTENT_OK", HungUp, Ignored),
    ("MAP", ToldOnce("MAPPED"), Ignored),
    ("MAPPED", HungUp, Told("UNMAPPED")),
    ("ROW", Told("MAP_FAILED"), Told("NOT_HAD")),
    ("ROW_OK", Ignored, Ignored),
    ("NOT_HAD", Ignored, Ignored),
    ("WATCHED", HungUp, Ignored),
    ("MAP_FAILED", HungUp, Ignored),
    ("SURPLUS", ToldOnce("TAKE_BACK"), Ignored),
    ("TAKE_BACK", HungUp, Ignored),
    ("RETURNED", HungUp, Ignored),
    ("DROP", HungUp, Ignored),
    ("UNMAPPED", Ignored, Ignored),
    ("PRESENT", HungUp, Ignored),
    ("RESUMED", HungUp, Ignored),
    ("WANTED", HungUp, Told("NOT_HAD")),
    ("GIVE", Ignored, Ignored),
    // It is a member no more, and the coordinator closes.
    ("LEAVE", HungUp, Ignored),
    ("LEFT", HungUp, Ignored),
    ("SHOW", HungUp, Ignored),
    ("SHOWN", HungUp, Ignored),
    ("SHOWN_MEMBER", HungUp, Ignored),
];

/// The kinds that the specification names, with their values.
fn specified() -> Vec<(&'static str, u32)> {
    let text = include_str!("../../../../../spec/pool.md");
    let table = text.split("### Kinds").nth(1).unwrap().split("\n### ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.map(|(name, rest)| (name, rest.split(" | ").next().unwrap().parse().unwrap())).collect()
}

fn kind_of(name: &str) -> u32 {
    specified().into_iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no kind {name}")).1
}

#[test]
fn the_table_has_every_kind_that_the_specification_names() {
    let specified: Vec<_> = specified().into_iter().map(|(name, _)| name).collect();
    assert_eq!(TABLE.map(|(name, ..)| name).to_vec(), specified);
}

/// How a message is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    AsItIs,
    Doubled,
    WithoutDescriptors,
    WithOneTooMany,
    /// Half of it, and no more is said.
    TooShort,
    /// And a byte more.
    TooLong,
}

const HOW: [How; 6] =
    [How::AsItIs, How::Doubled, How::WithoutDescriptors, How::WithOneTooMany, How::TooShort, How::TooLong];

/// Says it, and checks what follows; `probe` is a message, and what it is answered with where all is well.
fn check(
    socket: &UnixStream,
    message: &PoolMessage,
    (how, then): (How, Then),
    fd_counts: [usize; 2],
    probe: (PoolMessage, PoolMessage),
) {
    let kind = message.kind.get();
    let what = format!("{kind} {how:?}: {then:?}");
    let [fd_count, excess] = fd_counts;
    match how {
        How::AsItIs => say(socket, message, fd_count),
        How::Doubled => (0..2).for_each(|_| say(socket, message, fd_count)),
        How::WithoutDescriptors => say(socket, message, 0),
        How::WithOneTooMany => {
            say(socket, message, excess);
            assert!(hear(socket).is_none(), "{what}");
            return;
        }
        How::TooShort => {
            let _ = (&*socket).write(&message.as_bytes()[..POOL_MESSAGE_LEN / 2]);
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(hear(socket).is_none(), "{what}");
            return;
        }
        How::TooLong => {
            say(socket, message, fd_count);
            let _ = (&*socket).write(&[7]);
            say(socket, &probe.0, 0);
            // What the first one is answered may be lost: all that follows is read as another message, and is none.
            while hear(socket).is_some() {}
            return;
        }
    }
    let count = if how == How::Doubled { 2 } else { 1 };
    match then {
        HungUp => return assert!(hear(socket).is_none(), "{what}"),
        Ignored => {}
        Told(answer) => {
            for _ in 0..count {
                assert_eq!(hear(socket).map(|said| said.kind.get()), Some(kind_of(answer)), "{what}");
            }
        }
        ToldOnce(answer) => {
            assert_eq!(hear(socket).map(|said| said.kind.get()), Some(kind_of(answer)), "{what}");
            return;
        }
    }
    say(socket, &probe.0, 0);
    assert_eq!(hear(socket), Some(probe.1), "{what}");
}

/// A message of this kind about another's extent, with everything in it that any kind looks at.
fn forged(kind: u32, owner: MemberIdx, pool: [u8; 16]) -> PoolMessage {
    let mut message = PoolMessage::new(kind).about(owner, ExtentIdx(1)).of(BATCH).row(1);
    message.reason = pool_reason::BUSY.into();
    message.pool = pool;
    message
}

/// Two members that keep to the protocol, and what one of them holds of the other.
struct Honest {
    owner: Pool,
    reader: Pool,
    wire: [u8; tollfree_pool::REF_LEN],
    held: tollfree_pool::Ref,
}

impl Honest {
    fn new(place: &Place) -> Honest {
        let (owner, reader) = (place.join(), place.join());
        let shared = owner.copy_from_slice(&[7; 4096]).unwrap();
        let wire = shared.to_bytes().unwrap();
        let held = reader.map_ref(&wire).unwrap();
        // From here on the reader's hold alone keeps it.
        drop(shared);
        Honest { owner, reader, wire, held }
    }

    fn owner_idx(&self) -> MemberIdx {
        MemberIdx(u32::from_le_bytes(self.wire[16..20].try_into().unwrap()))
    }

    fn check(&self, what: &str) {
        assert!(self.owner.is_attached() && self.reader.is_attached(), "{what}");
        let mut other = self.owner.try_buffer(4096).unwrap();
        other.resize(4096);
        assert!(self.held.iter().all(|byte| *byte == 7), "{what}");
        assert_eq!(self.reader.map_ref(&self.wire).unwrap().len(), 4096, "{what}");
    }
}

/// Fault 43, to the coordinator.
#[test]
fn whatever_a_member_says_out_of_order_harms_nobody_else() {
    let _limit = TimeLimit::seconds(240);
    let place = Place::new();
    let capacity = tollfree_pool::Capacity { total: 64 * BATCH, ..capacity() };
    let _coordinator = Coordinator::start(&place.address, capacity).unwrap();
    let honest = Honest::new(&place);
    let surplus = u64::MAX;
    let probe = (
        PoolMessage::new(pool_kind::SURPLUS).of(surplus),
        PoolMessage::new(pool_kind::TAKE_BACK).of(surplus),
    );
    let unknown = [0, 30, u32::MAX].map(|kind| (kind, HungUp));
    let known = TABLE.map(|(name, then, _)| (kind_of(name), then));
    for (kind, then) in known.into_iter().chain(unknown) {
        for how in HOW {
            let stranger = Stranger::join(&place);
            let message = forged(kind, honest.owner_idx(), honest.owner.id());
            let fd_count = pool_kind::fd_count(kind);
            check(&stranger.socket, &message, (how, then), [fd_count, fd_count + 1], probe);
        }
        honest.check(&format!("after {kind}"));
    }
}

/// Fault 43, from one who is no member.
#[test]
fn whatever_a_newcomer_says_it_is_let_in_shown_or_refused_in_words() {
    let _limit = TimeLimit::seconds(240);
    let place = Place::new();
    let _coordinator = Coordinator::start(&place.address, capacity()).unwrap();
    let honest = Honest::new(&place);
    for kind in (0..31).chain([u32::MAX]) {
        for (fd_count, version) in [(0, POOL_VERSION), (1, POOL_VERSION), (0, POOL_VERSION + 1)] {
            let socket = connect(&place);
            let mut message = forged(kind, honest.owner_idx(), honest.owner.id());
            message.version = version.into();
            say(&socket, &message, fd_count);
            let answer = hear(&socket).unwrap();
            let said = (answer.kind.get(), answer.reason.get());
            if kind == pool_kind::SHOW && fd_count == 0 && version == POOL_VERSION {
                assert_eq!(said.0, pool_kind::SHOWN);
                assert!((0..answer.extent.get()).all(|_| hear(&socket).is_some()));
            } else if version == POOL_VERSION {
                assert_eq!(said, (pool_kind::REFUSAL, pool_reason::MALFORMED), "{kind}, {fd_count}");
            } else {
                assert_eq!(said, (pool_kind::REFUSAL, pool_reason::VERSION), "{kind}");
            }
            assert!(hear(&socket).is_none(), "{kind}");
        }
        // Half a message is none, and neither is one of something else.
        let half = connect(&place);
        let _ = (&half).write(&forged(kind, honest.owner_idx(), honest.owner.id()).as_bytes()[..40]);
        half.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(hear(&half).is_none(), "{kind}");
    }
    honest.check("after all");
}

/// Fault 43: what one that has come back says twice, or of itself, or too late.
#[test]
fn one_that_comes_back_states_each_thing_once_and_before_it_has_resumed() {
    let _limit = TimeLimit::seconds(240);
    let place = Place::new();
    let _coordinator = Coordinator::start(&place.address, capacity()).unwrap();
    let honest = Honest::new(&place);
    let new = |kind| forged(kind, honest.owner_idx(), honest.owner.id());
    let (extent, present, resumed) =
        (new(pool_kind::EXTENT), new(pool_kind::PRESENT), new(pool_kind::RESUMED));
    let of_itself = |own: MemberIdx| new(pool_kind::PRESENT).about(own, ExtentIdx(1));
    type Story = fn(PoolMessage, [PoolMessage; 3]) -> Vec<PoolMessage>;
    let stories: [(&str, Story); 6] = [
        ("an extent twice", |_, [extent, ..]| vec![extent, extent]),
        ("an extent after RESUMED", |_, [extent, _, resumed]| vec![resumed, extent]),
        ("more than its quota", |_, [extent, ..]| vec![extent.of(5 * BATCH)]),
        ("its own extent as another's", |own, _| vec![own]),
        ("PRESENT after RESUMED", |_, [_, present, resumed]| vec![resumed, present]),
        ("RESUMED twice", |_, [_, _, resumed]| vec![resumed, resumed]),
    ];
    for (what, story) in stories {
        let before = Stranger::join(&place);
        let mut join = PoolMessage::new(pool_kind::JOIN);
        (join.pool, join.member, join.secret) =
            (before.welcome.pool, before.welcome.member, before.welcome.secret);
        let back = connect(&place);
        say(&back, &join, 0);
        assert_eq!(hear(&back).unwrap().kind.get(), pool_kind::WELCOME, "{what}");
        assert!(hear(&before.socket).is_none(), "{what}: its earlier connection is closed");
        for message in story(of_itself(before.welcome.member()), [extent, present, resumed]) {
            say(&back, &message, 0);
        }
        while let Some(said) = hear(&back) {
            assert_eq!(said.kind.get(), pool_kind::EXTENT_OK, "{what}");
        }
        honest.check(what);
    }
}

/// A coordinator that says what it likes, and the member that has joined it.
struct FalseCoordinator {
    listener: UnixListener,
    socket: UnixStream,
    member: Pool,
    welcome: PoolMessage,
}

impl FalseCoordinator {
    fn new(place: &Place) -> FalseCoordinator {
        let Address::Path(path) = &place.address else { panic!("a path") };
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let mut welcome = PoolMessage::new(pool_kind::WELCOME).of(64 * BATCH).row(BATCH);
        (welcome.pool, welcome.secret) = ([3; 16], [5; 16]);
        #[expect(deprecated, reason = "std's keyed SipHash-2-4 is what the specification names")]
        let mut hasher =
            std::hash::SipHasher::new_with_keys(u64::from_le_bytes([3; 8]), u64::from_le_bytes([3; 8]));
        hasher.write(&[5; 16]);
        welcome.member = (hasher.finish() as u32).into();
        std::thread::scope(|scope| {
            let joined = scope.spawn(|| place.join());
            let socket = welcome_next(&listener, &welcome).0;
            FalseCoordinator { socket, member: joined.join().unwrap(), welcome, listener }
        })
    }
}

/// Lets the next one in, and returns what it has said.
fn welcome_next(listener: &UnixListener, welcome: &PoolMessage) -> (UnixStream, PoolMessage) {
    let (socket, _) = listener.accept().unwrap();
    let join = hear(&socket).unwrap();
    assert_eq!(join.kind.get(), pool_kind::JOIN);
    say(&socket, welcome, 0);
    (socket, join)
}

/// Fault 43, to a member: what it hears unasked it answers or ignores, and goes on; what it can't read it hangs up on, and comes back.
#[test]
fn whatever_a_coordinator_says_unasked_a_member_goes_on() {
    let _limit = TimeLimit::seconds(240);
    let place = Place::new();
    let other = MemberIdx(99);
    let probe = (
        PoolMessage::new(pool_kind::WANTED).about(other, ExtentIdx(777)),
        PoolMessage::new(pool_kind::NOT_HAD).about(other, ExtentIdx(777)).because(pool_reason::GONE),
    );
    let unknown = [0, 30, u32::MAX].map(|kind| (kind, Ignored));
    let known = TABLE.map(|(name, _, then)| (kind_of(name), then));
    for (kind, then) in known.into_iter().chain(unknown) {
        let coordinator = FalseCoordinator::new(&place);
        let mut socket = coordinator.socket.try_clone().unwrap();
        for how in HOW {
            // Nothing has more descriptors than two, and what has fewer is no fault for a member.
            let fd_count = if kind == pool_kind::MAPPED || kind == pool_kind::ROW { 2 } else { 0 };
            check(&socket, &forged(kind, other, [3; 16]), (how, then), [fd_count, 3], probe);
            if matches!(how, How::WithOneTooMany | How::TooShort | How::TooLong) {
                drop(socket);
                let (again, join) = welcome_next(&coordinator.listener, &coordinator.welcome);
                assert_eq!(
                    (join.member, join.secret),
                    (coordinator.welcome.member, coordinator.welcome.secret),
                    "{kind} {how:?}"
                );
                while hear(&again).is_some_and(|said| said.kind.get() != pool_kind::RESUMED) {}
                socket = again;
            }
        }
        until("it is attached", || coordinator.member.is_attached());
    }
}
