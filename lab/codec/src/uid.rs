//! The costs of Cerebros' service UniqueId on this machine, for the model of its figure 6.
//!
//! A request has four messages: it comes in, a nested call goes out, its reply comes in, and the own reply goes out. Messages are those of the social
//! network's `ComposeUniqueId`, by Thrift's compact protocol, as the paper's are.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tollfree_bench::BenchError;
use tollfree_bench::echo::{EchoPlan, Row};
use tollfree_bench::harness::{Lasting, Rows};
use tollfree_bench::message::Message;
use tollfree_bench::model::OffloadCosts;
use tollfree_bench::plan::{Malloc, Placement, RuntimeKind, Side};
use tollfree_processor::thrift::{MessageHeader, MessageType, Protocol};
use tollfree_processor::{Arena, Limits, Method, MethodMap, Processor};
use tollfree_schema::Schema;

const IDL: &str =
    include_str!("../../../crates/processor/tests/testdata/thrift-socialnetwork/socialnetwork.thrift");
const FUNCTION: &str = "ComposeUniqueId";
const SERVICE: &str = "socialnetwork.UniqueIdService.ComposeUniqueId";
/// Runs of one batch, and batches; the median batch counts.
const BATCH: u32 = 2000;
const BATCHES: usize = 31;

/// How long a round trip over two bare rings is measured: 64 bytes, one at a time, a core a side.
#[must_use]
pub fn ring_plan() -> EchoPlan {
    EchoPlan {
        messages: vec![Message::Probe],
        corpus: None,
        sizes: vec![64],
        metadata: vec![0],
        inflights: vec![1],
        placements: vec![Placement::Split],
        sides: vec![Side::Floor],
        runtimes: vec![RuntimeKind::Current],
        lasting: Lasting { seconds: 0.5, rounds: 3 },
        calls: None,
        malloc: Malloc::Keep,
    }
}

/// Arguments of a call: `req_id`, `post_type`, and a `carrier` of one entry.
const ARGUMENTS: &[u8] = b"\x16\xf2\xc0\x01\x15\x02\x1b\x01\x88\x0dtrace-context\x1000f067aa0ba902b7\x00";
/// Result of a reply: field 0, an i64.
const RESULT: &[u8] = b"\x06\x00\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00";

fn message(kind: MessageType, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    MessageHeader { name: FUNCTION, kind, seq_id: 1, protocol: Protocol::Compact }.write(&mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

/// Nanoseconds of this thread's processor time that an operation takes: the median of batches.
fn cost_ns(mut run: impl FnMut()) -> f64 {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = now();
            (0..BATCH).for_each(|_| run());
            (now() - start).as_nanos() as f64 / f64::from(BATCH)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    batches[BATCHES / 2]
}

/// This machine's costs: headers, payloads and dispatch by the processor, and a round trip over two bare rings, which an offload to another core takes
/// at least, from a report of [`ring_plan`]. The accelerator is the same code on another core. Who is handed messages ready touches each once: half
/// a round trip.
///
/// # Errors
/// [`BenchError::Refused`] if the rings were not measured.
pub fn offload_costs(rings: &Rows<Row>) -> Result<OffloadCosts, BenchError> {
    let refused = |what: &dyn std::fmt::Display| BenchError::Refused(what.to_string());
    let all = rings.rows.iter().find_map(|row| row.latencies());
    let ring_ns = all.ok_or_else(|| refused(&"the rings were not measured"))?.quantile_ns(0.5) as f64;
    let schema = Schema::from_thrift("socialnetwork.thrift", IDL).map_err(|error| refused(&error))?;
    let processor = Processor::new(schema.compile().map_err(|error| refused(&error))?);
    let type_of = |part: &str| {
        let name = format!("{SERVICE}_{part}");
        processor.type_by_name(&name).ok_or_else(|| refused(&format!("the schema has no type {name}")))
    };
    let (arguments, result) = (type_of("args")?, type_of("result")?);
    let method = Method {
        name: FUNCTION.to_owned(),
        processor: processor.clone(),
        input_type_idx: arguments,
        output_type_idx: result,
        handler_idx: 0,
    };
    let map = MethodMap::new([method]).map_err(|error| refused(&error))?;

    let (protocol, mut payloads, mut headers) = (Protocol::Compact, 0.0, 0.0);
    let kinds = [(MessageType::Call, ARGUMENTS, arguments), (MessageType::Reply, RESULT, result)];
    for (kind, body, type_idx) in kinds {
        let bytes = message(kind, body);
        let (header, at) = MessageHeader::read(protocol, &bytes).map_err(|error| refused(&error))?;
        headers += cost_ns(|| {
            black_box(MessageHeader::read(protocol, black_box(&bytes)).is_ok());
        });
        let mut out = Vec::with_capacity(256);
        headers += cost_ns(|| {
            out.clear();
            black_box(&header).write(&mut out);
            black_box(&mut out);
        });
        let (mut arena, mut kept) = (Arena::with_limit(1 << 16), Arena::with_limit(1 << 16));
        let limits = Limits::default();
        payloads += cost_ns(|| {
            let input = black_box(&bytes[..]);
            let decoded = processor.decode_thrift(protocol, type_idx, input, at, &mut arena, &limits);
            black_box(decoded.is_ok());
        });
        let decoded = processor.decode_thrift(protocol, type_idx, &bytes, at, &mut kept, &limits);
        let (object, _) = decoded.map_err(|error| refused(&error))?;
        object.encode_thrift(protocol, &mut out).map_err(|error| refused(&error))?;
        payloads += cost_ns(|| {
            out.clear();
            black_box(black_box(&object).encode_thrift(protocol, &mut out).is_ok());
        });
    }
    let dispatch = cost_ns(|| {
        black_box(map.by_name(black_box(FUNCTION)));
    });
    Ok(OffloadCosts {
        unit: "ns",
        headers,
        payloads,
        dispatch,
        tasks: 4.0,
        offload: ring_ns,
        offload_coalesced: None,
        headers_offloaded: headers,
        payloads_offloaded: payloads,
        handed: 4.0 * ring_ns / 2.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_of_their_types() {
        let schema = Schema::from_thrift("socialnetwork.thrift", IDL).unwrap();
        let processor = Processor::new(schema.compile().unwrap());
        for (part, body) in [("args", ARGUMENTS), ("result", RESULT)] {
            let type_idx = processor.type_by_name(&format!("{SERVICE}_{part}")).unwrap();
            let bytes = message(MessageType::Call, body);
            let (_, at) = MessageHeader::read(Protocol::Compact, &bytes).unwrap();
            let mut arena = Arena::with_limit(1 << 16);
            let decoded = processor.decode_thrift(
                Protocol::Compact,
                type_idx,
                &bytes,
                at,
                &mut arena,
                &Limits::default(),
            );
            let (object, end) = decoded.unwrap();
            assert_eq!(end, bytes.len(), "{part}");
            let mut out = Vec::new();
            object.encode_thrift(Protocol::Compact, &mut out).unwrap();
            assert_eq!(out, body, "{part}");
        }
    }
}
