//! The log of a gateway: each place writes ten lines at once and then one a second, and says how many like them were left out.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tollfree_gateway::RateLimitedLog;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// How many lines like this one were left out. A line that has it was limited where it comes from.
const LEFT_OUT: &str = "unsaid";

/// One JSON object a line.
struct Lines {
    form: Format<Json>,
    places: Mutex<HashMap<Identifier, RateLimitedLog>>,
}

impl Lines {
    fn new() -> Lines {
        Lines { form: Format::default().json().flatten_event(true), places: Mutex::default() }
    }

    /// Whether a place writes a line now; if so, how many it has left out.
    fn turn(&self, place: &Metadata<'_>) -> Option<u64> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(place.callsite()).or_default().turn()
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if event.metadata().fields().field(LEFT_OUT).is_some() {
            return self.form.format_event(ctx, writer, event);
        }
        let Some(left_out) = self.turn(event.metadata()) else { return Ok(()) };
        let mut line = String::new();
        self.form.format_event(ctx, Writer::new(&mut line), event)?;
        match line.strip_suffix("}\n") {
            Some(object) if left_out > 0 => writeln!(writer, "{object},\"{LEFT_OUT}\":{left_out}}}"),
            _ => writer.write_str(&line),
        }
    }
}

/// The log, as it is written to `writer`.
fn layer<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).fmt_fields(JsonFields::new());
    layer.event_format(Lines::new()).with_writer(writer)
}

/// On standard error: the gateway runs under a service manager.
pub(crate) fn begin(level: Level) {
    let level = level.max(Level::INFO);
    tracing_subscriber::registry()
        .with(layer(std::io::stderr))
        .with(tracing_subscriber::filter::LevelFilter::from_level(level))
        .init();
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use serde_json::Value;

    use super::*;

    /// Gathers what is written.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        /// The lines since the last time.
        fn take(&self) -> Vec<Value> {
            let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
            text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
        }
    }

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_is_limited_place_by_place_and_says_what_was_left_out() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::registry().with(layer(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let places: [fn(u64); 2] = [
                |number| tracing::warn!(target: "h2::proto", number, "a library"),
                |number| tracing::info!(target: "tollfree::endpoint", number, "one of our own without a limit"),
            ];
            for place in places {
                let before = RateLimitedLog::left_out();
                (0..1000).for_each(place);
                let first = written.take();
                assert!((10..100).contains(&first.len()), "{} lines", first.len());
                let counted = RateLimitedLog::left_out() - before;
                // The next line is written a second later.
                let began = Instant::now();
                let next = loop {
                    place(1000);
                    if let Some(next) = written.take().pop() {
                        break next;
                    }
                    assert!(began.elapsed() < Duration::from_secs(60), "nothing more is written");
                    std::thread::sleep(Duration::from_millis(20));
                };
                assert!(next[LEFT_OUT].as_u64().unwrap() >= counted.min(900), "{next}");
                assert_eq!((&next["number"], &next["level"]), (&1000.into(), &first[0]["level"]));
                assert!(first[0].get(LEFT_OUT).is_none(), "{}", first[0]);
            }
            (0..100)
                .for_each(|unsaid| tracing::warn!(target: "tollfree", unsaid, "limited where it is said"));
            let own = written.take();
            assert_eq!(own.len(), 100);
            assert_eq!(own[7][LEFT_OUT], 7);
        });
    }
}
