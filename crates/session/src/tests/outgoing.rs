//! What a sender has to say, and what heads of frames say of it.

use bytes::Bytes;
use tollfree_layout::StreamId;
use tollfree_layout::frame::{events, flags};

use crate::tests::script::{LIMITS, Script, Sink, say};
use crate::{Ending, Keep, Limits, OBJECT_PREFIX, Outgoing, OutgoingMessage, Progress, Role, Session};

/// Messages of these lengths, each behind gRPC's prefix with this first byte.
fn framed(flag: u8, lens: &[usize]) -> Bytes {
    let message = |len: &usize| [&[flag], &(*len as u32).to_be_bytes()[..], &vec![7; *len]].concat();
    lens.iter().flat_map(message).collect()
}

fn lens(message: &OutgoingMessage) -> Vec<usize> {
    message.lens().collect()
}

#[test]
fn a_batch_is_taken_off_the_front_of_messages_as_long_as_they_are_short_and_few() {
    let all = [3, 5, 0, 4, 1];
    for (longest, count_max, taken) in [
        (usize::MAX / 2, usize::MAX, 5),
        (5, usize::MAX, 5),
        (4, usize::MAX, 0),
        (3, usize::MAX, 0),
        (5, 4, 4),
        (5, 2, 2),
        (5, 1, 0),
        (5, 0, 0),
    ] {
        let mut messages = framed(0, &all);
        let batch = OutgoingMessage::batch_off(&mut messages, longest, count_max);
        assert_eq!(batch.as_ref().map_or(vec![], lens), all[..taken], "{longest} {count_max}");
        assert_eq!(messages, framed(0, &all[taken..]), "the others stay");
        assert!(batch.is_none_or(|batch| batch.is_batch() && !batch.is_object() && !batch.is_begun()));
    }
    assert!(
        OutgoingMessage::batch_off(&mut framed(OBJECT_PREFIX, &all), 9, 9).is_none(),
        "objects are others"
    );
}

#[test]
fn objects_go_alone_or_in_a_batch() {
    let one = OutgoingMessage::objects(framed(OBJECT_PREFIX, &[4])).unwrap();
    assert!(one.is_object() && !one.is_batch() && !one.is_segmented());
    assert_eq!((one.len(), one.to_bytes(), lens(&one)), (4, Bytes::from_static(&[7; 4]), vec![4]));
    let two = OutgoingMessage::objects(framed(OBJECT_PREFIX, &[4, 0])).unwrap();
    assert!(two.is_object() && two.is_batch());
    assert_eq!((two.len(), lens(&two)), (14, vec![4, 0]));
    let cut = framed(OBJECT_PREFIX, &[4, 4]);
    for wrong in [Bytes::new(), cut.slice(..cut.len() - 1), framed(0, &[4]), framed(1, &[4, 4])] {
        assert!(OutgoingMessage::objects(wrong).is_none());
    }
}

#[test]
fn a_message_knows_what_sort_it_is() {
    let data = || Bytes::from_static(b"data");
    let sorts = [
        (OutgoingMessage::new(data(), false), [false, false, false]),
        (OutgoingMessage::new(data(), true), [true, false, false]),
        (OutgoingMessage::plain(data().into()), [false, false, false]),
        (OutgoingMessage::object(data().into()), [false, true, false]),
        (OutgoingMessage::segmented(data(), false, Keep::new(())), [false, false, true]),
        (OutgoingMessage::segmented(data(), true, Keep::new(())), [true, false, true]),
        (OutgoingMessage::object_segmented(data(), Keep::new(())), [false, true, true]),
    ];
    for (message, sort) in sorts {
        assert_eq!([message.compressed, message.is_object(), message.is_segmented()], sort);
        assert!(message.is_single() && !message.is_begun() && lens(&message) == [4]);
        // And so says the head of its frame.
        let said = sort.iter().zip([flags::COMPRESSED, flags::OBJECT, flags::SEGMENTED]);
        let wanted =
            said.filter(|(is, _)| **is).fold(flags::FIRST | flags::LAST, |all, (_, flag)| all | flag);
        let (mut server, mut out) = answering(LIMITS);
        let mut outgoing = Outgoing { message: Some(message), ..Outgoing::default() };
        assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Ok(Progress::Done));
        let heads = out.take();
        let [head] = &heads[..] else { panic!("{heads:?}") };
        assert_eq!((head.events, head.flags, head.message_len.get()), (events::MESSAGE, wanted, 4));
    }
}

const ONE: StreamId = StreamId(1);

/// A server whose client has these limits, with a call whose headers are sent.
fn answering(of_client: Limits) -> (Session<()>, Sink) {
    let mut server = Session::new(Role::Server, LIMITS, of_client).with_segmented(true);
    let mut out = Sink::new();
    Script::opening(1).send(&mut server).unwrap();
    server.accept().unwrap();
    let mut headers = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
    say(&mut server, &mut out, ONE, &mut headers).unwrap();
    out.take();
    (server, out)
}

/// Flags, lengths of chunks and of messages of the frames that were staged.
fn chunks(out: &mut Sink) -> Vec<(u8, u32, u32)> {
    out.take().iter().map(|head| (head.flags, head.chunk_len.get(), head.message_len.get())).collect()
}

const RICH: Limits =
    Limits { stream_window: 1 << 20, session_window: 1 << 22, stream_count: 2, metadata_len_max: 100 };

#[test]
fn a_batch_goes_in_frames_that_hold_it_and_a_long_message_of_it_by_itself() {
    let whole = flags::FIRST | flags::LAST;
    let batch = whole | flags::BATCH;
    for (flag, of_sort) in [(0, 0), (OBJECT_PREFIX, flags::OBJECT)] {
        let (mut server, mut out) = answering(RICH);
        out.record_len_max = 1024;
        let mut messages = framed(flag, &[400, 500, 600, 3000, 10, 20]);
        let message = match flag {
            0 => OutgoingMessage::batch_off(&mut messages, 5000, 9),
            _ => OutgoingMessage::objects(messages),
        };
        let mut outgoing = Outgoing { message, ..Outgoing::default() };
        out.room = 1;
        assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Ok(Progress::RanOut));
        let left = outgoing.message.as_ref().unwrap();
        assert_eq!((lens(left), left.is_begun()), (vec![600, 3000, 10, 20], true));
        out.room = 2;
        say(&mut server, &mut out, ONE, &mut outgoing).unwrap();
        let left = outgoing.message.as_ref().unwrap();
        assert_eq!((left.is_single(), lens(left)[1..].to_vec()), (false, vec![10, 20]));
        out.room = usize::MAX;
        assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Ok(Progress::Done));
        assert!(outgoing.is_empty());
        let room = 1000;
        assert_eq!(
            chunks(&mut out),
            [
                (batch | of_sort, 910, 2),
                (batch | of_sort, 605, 1),
                (flags::FIRST | of_sort, room, 3000),
                (0, room, 0),
                (flags::LAST, room, 0),
                (batch | of_sort, 40, 2),
            ]
        );
    }
}

#[test]
fn a_compressed_message_of_a_batch_that_goes_alone_says_so() {
    let (mut server, mut out) = answering(RICH);
    out.record_len_max = 1024;
    let mut messages = framed(1, &[2000, 1]);
    let message = OutgoingMessage::batch_off(&mut messages, 5000, 9);
    let mut outgoing = Outgoing { message, ..Outgoing::default() };
    assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Ok(Progress::Done));
    let whole = flags::FIRST | flags::LAST;
    assert_eq!(
        chunks(&mut out),
        [
            (flags::FIRST | flags::COMPRESSED, 1000, 2000),
            (flags::LAST, 1000, 0),
            (whole | flags::BATCH, 6, 1),
        ]
    );
}

#[test]
fn the_end_goes_with_the_last_frame_of_what_is_said() {
    let (mut server, mut out) = answering(RICH);
    let mut messages = framed(0, &[5, 5]);
    let message = OutgoingMessage::batch_off(&mut messages, 5000, 9);
    let ending = Some(Ending::Trailers { code: 0, block: Bytes::new() });
    let mut outgoing = Outgoing { message, ending, ..Outgoing::default() };
    assert!(!outgoing.is_empty());
    assert_eq!(say(&mut server, &mut out, ONE, &mut outgoing), Ok(Progress::Done));
    let heads = out.take();
    let [head] = &heads[..] else { panic!("{heads:?}") };
    assert_eq!(head.events, events::MESSAGE | events::TRAILERS);
    assert!(outgoing.is_empty());
}

/// Where messages go by what they cost: 8 KiB and less inline, more in an area, and no more than credit covers.
#[test]
fn a_message_is_cut_where_its_way_and_credit_end() {
    const INLINE: usize = crate::frame_builder::INLINE_LEN_MAX;
    let frames = |len: usize, area: usize, limits: Limits| {
        let (mut server, mut out) = answering(limits);
        out.area_chunk_max = area;
        let message = Some(OutgoingMessage::new(vec![7; len].into(), false));
        let mut outgoing = Outgoing { message, ..Outgoing::default() };
        let mut progress = say(&mut server, &mut out, ONE, &mut outgoing);
        while progress == Ok(Progress::Partly) {
            progress = say(&mut server, &mut out, ONE, &mut outgoing);
        }
        let heads = out.take();
        let in_area = |flags: u8| flags & flags::IN_AREA != 0;
        let frames: Vec<_> =
            heads.iter().map(|head| (head.chunk_len.get() as usize, in_area(head.flags))).collect();
        (progress.unwrap(), frames)
    };
    assert_eq!(frames(INLINE, usize::MAX, RICH), (Progress::Done, vec![(INLINE, false)]));
    assert_eq!(frames(INLINE + 1, usize::MAX, RICH), (Progress::Done, vec![(INLINE + 1, true)]));
    let cut = vec![(10_000, true), (10_000, true), (5_000, false)];
    assert_eq!(frames(25_000, 10_000, RICH), (Progress::Done, cut));
    let record = 16_312 - 24;
    assert_eq!(
        frames(20_000, INLINE - 1, RICH),
        (Progress::Done, vec![(record, false), (20_000 - record, false)])
    );
    // A chunk costs 64 more than its bytes, and crumbs wait.
    let credit = |stream_window| Limits { stream_window, ..RICH };
    assert_eq!(frames(5000, 0, credit(5064)), (Progress::Done, vec![(5000, false)]));
    assert_eq!(frames(5000, 0, credit(5063)), (Progress::NeedCredit, vec![(4999, false)]));
    assert_eq!(frames(5000, 0, credit(2111)), (Progress::NeedCredit, vec![(2047, false)]));
    let session = |session_window| Limits { session_window, stream_window: session_window, ..RICH };
    assert_eq!(frames(5000, 0, session(5063)), (Progress::NeedCredit, vec![(4999, false)]));
}
