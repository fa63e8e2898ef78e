//! What a gateway would take if decoding and encoding took no time: Split gRPC's figure 2 with an accelerator, modelled.
//!
//! The measured processor time of a gateway that hands on objects, less what one decode and one encode of the same message take, measured beside it.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tollfree_processor::typed::{self, Message};
use tollfree_processor::{Arena, EncodeBuffer, Limits};

use super::SplitMessage;
use crate::BenchError;
use crate::objects::views::fds::FileDescriptorSet;
use crate::objects::views::hyperprotobench::{M3, M34, M43};
use crate::objects::views::shop::Order;
use crate::objects::views::tollfree::bench::v1::Bytes;

/// Longer than any object here.
const OBJECT_LEN_MAX: usize = 64 << 20;
/// Time of a batch, and batches; the median batch counts.
const BATCH: Duration = Duration::from_millis(10);
const BATCHES: usize = 15;

/// Nanoseconds of processor time that a decode and an encode of a message take.
///
/// # Errors
/// [`BenchError::Refused`] if it is no such message.
pub(super) fn codec_ns(message: SplitMessage, bytes: &[u8]) -> Result<f64, BenchError> {
    match message {
        SplitMessage::Echo64 => of::<Bytes>(bytes),
        SplitMessage::M3 => of::<M3>(bytes),
        SplitMessage::M43 => of::<M43>(bytes),
        SplitMessage::M34 => of::<M34>(bytes),
        SplitMessage::Order => of::<Order>(bytes),
        SplitMessage::Fds => of::<FileDescriptorSet>(bytes),
    }
}

fn of<M: Message>(bytes: &[u8]) -> Result<f64, BenchError> {
    let processor = typed::processor::<M::Compiled>();
    let (mut arena, mut buffer) = (Arena::with_limit(OBJECT_LEN_MAX), EncodeBuffer::new());
    let limits = Limits::default();
    let mut run = || {
        let input = black_box(bytes);
        let decoded = processor.decode(M::TYPE_IDX, input, &mut arena, &limits);
        let object = decoded.map_err(|error| BenchError::Refused(error.to_string()))?;
        let encoded = object.encode(&mut buffer).map_err(|error| BenchError::Refused(error.to_string()))?;
        black_box(encoded);
        Ok::<_, BenchError>(())
    };
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let (start, mut count) = (now(), 0_u32);
        while now() - start < BATCH {
            run()?;
            count += 1;
        }
        batches.push((now() - start).as_nanos() as f64 / f64::from(count.max(1)));
    }
    batches.sort_by(f64::total_cmp);
    Ok(batches[BATCHES / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_measured_and_no_other_bytes_are() {
        for message in SplitMessage::ALL {
            let bytes = message.bytes(None).unwrap();
            assert!(codec_ns(*message, &bytes).unwrap() > 0.0, "{message}");
            assert!(codec_ns(*message, &bytes[..bytes.len() / 2]).is_err(), "{message}");
        }
    }
}
