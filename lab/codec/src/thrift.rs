//! Thrift's payloads: arguments and results of a social network's functions, from a corpus or generated.

use std::path::Path;

use tollfree_bench::BenchError;
use tollfree_bench::lookalike::Random;
use tollfree_processor::Processor;
use tollfree_processor::thrift::{MessageHeader, Protocol};
use tollfree_schema::Schema;

use super::measure::Runner;
use super::ours::{Codec, Ours};
use super::report::Group;
use super::thrift_peer::{ComposePost, Generated, Ids, PEER, Posts, ReadPosts, Urls, peer_rows};
use super::{CodecPlan, at_each_seat, measure};

/// The IDL of the corpus, which is kept beside the processor's tests.
const IDL: &str =
    include_str!("../../../crates/processor/tests/testdata/thrift-socialnetwork/socialnetwork.thrift");

const PROTOCOLS: [(&str, Protocol); 2] = [("compact", Protocol::Compact), ("binary", Protocol::Binary)];

/// One struct on the wire: the arguments of a call, or the result of a reply.
#[derive(Clone)]
pub(super) struct ThriftPayload {
    pub name: String,
    protocol: Protocol,
    type_name: &'static str,
    bytes: Vec<u8>,
    /// The peer's rows for it.
    peer: fn(Protocol, &[u8]) -> Vec<Runner<'_>>,
}

/// File in the corpus, type of the struct in it, the peer's type.
struct Kept {
    file: &'static str,
    type_name: &'static str,
    peer: fn(Protocol, &[u8]) -> Vec<Runner<'_>>,
    generated: fn(Protocol, &mut Random) -> Vec<u8>,
}

const fn kept<T: Generated + 'static>(file: &'static str, type_name: &'static str) -> Kept {
    Kept { file, type_name, peer: peer_rows::<T>, generated: generated::<T> }
}

/// The corpus' larger messages.
const KEPT: [Kept; 6] = [
    kept::<ReadPosts>("PostStorageService.ReadPosts.call", "socialnetwork.PostStorageService.ReadPosts_args"),
    kept::<ComposePost>(
        "ComposePostService.ComposePost.call.large",
        "socialnetwork.ComposePostService.ComposePost_args",
    ),
    kept::<Urls>(
        "UrlShortenService.ComposeUrls.reply.64",
        "socialnetwork.UrlShortenService.ComposeUrls_result",
    ),
    kept::<Ids>(
        "SocialGraphService.GetFollowers.reply.large",
        "socialnetwork.SocialGraphService.GetFollowers_result",
    ),
    kept::<Posts>("PostStorageService.ReadPosts.reply", "socialnetwork.PostStorageService.ReadPosts_result"),
    kept::<Posts>(
        "HomeTimelineService.ReadHomeTimeline.reply",
        "socialnetwork.HomeTimelineService.ReadHomeTimeline_result",
    ),
];

/// The messages of a corpus in `dir`, if there is one: `compact/<name>.bin` and `binary/<name>.bin`, whole messages.
pub(super) fn from_corpus(dir: &Path) -> Result<Vec<ThriftPayload>, BenchError> {
    if !dir.join("compact").is_dir() || !dir.join("binary").is_dir() {
        return Ok(Vec::new());
    }
    let mut payloads = Vec::new();
    for (kept, (folder, protocol)) in each() {
        let path = dir.join(folder).join(format!("{}.bin", kept.file));
        let message = std::fs::read(&path)
            .map_err(|error| BenchError::Refused(format!("cannot read {}: {error}", path.display())))?;
        let (_, at) = MessageHeader::read(protocol, &message)
            .map_err(|error| BenchError::Refused(format!("{}: {error}", path.display())))?;
        payloads.push(payload(kept, folder, protocol, message[at..].to_vec()));
    }
    Ok(payloads)
}

/// The same types with seeded contents.
pub(super) fn lookalikes(seed: u64) -> Vec<ThriftPayload> {
    each()
        .map(|(kept, (folder, protocol))| {
            let bytes = (kept.generated)(protocol, &mut Random(seed));
            payload(kept, folder, protocol, bytes)
        })
        .collect()
}

fn each() -> impl Iterator<Item = (&'static Kept, (&'static str, Protocol))> {
    PROTOCOLS.into_iter().flat_map(|protocol| KEPT.iter().map(move |kept| (kept, protocol)))
}

fn payload(kept: &Kept, folder: &str, protocol: Protocol, bytes: Vec<u8>) -> ThriftPayload {
    let short = kept.file.split_once('.').map_or(kept.file, |(_, method)| method);
    ThriftPayload {
        name: format!("thrift-{folder}/{short}"),
        protocol,
        type_name: kept.type_name,
        bytes,
        peer: kept.peer,
    }
}

fn generated<T: Generated>(protocol: Protocol, random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    T::seeded(random).encode(protocol, &mut out);
    out
}

/// Measures all rows of one payload.
pub(super) fn group(plan: &CodecPlan, payload: &ThriftPayload) -> Result<Group, BenchError> {
    at_each_seat(plan.lasting.rounds, |rounds| group_at(plan, rounds, &payload.clone()))
}

fn group_at(plan: &CodecPlan, rounds: usize, payload: &ThriftPayload) -> Result<Group, BenchError> {
    let refused = |what: &dyn std::fmt::Display| BenchError::Refused(format!("{}: {what}", payload.name));
    let schema = Schema::from_thrift("socialnetwork.thrift", IDL).map_err(|error| refused(&error))?;
    let processor = Processor::new(schema.compile().map_err(|error| refused(&error))?);
    let type_idx = processor.type_by_name(payload.type_name).ok_or_else(|| refused(&payload.type_name))?;
    let codec = Codec::Thrift(payload.protocol);
    let ours = Ours::of(&payload.name, &payload.bytes, processor, type_idx, codec)
        .map_err(|error| refused(&error))?;
    let mut rows = vec![measure::memcpy(&payload.bytes)];
    rows.extend(ours.rows());
    rows.extend((payload.peer)(payload.protocol, &payload.bytes));
    Ok(Group {
        payload: payload.name.clone(),
        baseline: PEER,
        bytes: payload.bytes.len(),
        fields: ours.field_count(),
        object_len: ours.object_len(),
        rows: measure::interleaved(rows, rounds, plan.lasting.measure()),
    })
}
