//! The log of a shepherd: what others can cause as often as they like is limited, in libraries too.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tollfree_shepherd::Seldom;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// What our own parts log is limited where it is said, with a count of what is not.
const OWN: &str = "tollfree";

/// Lets each place of a library say a few things, and then one a second.
#[derive(Default)]
struct Libraries {
    places: Mutex<HashMap<Identifier, Seldom>>,
}

impl Libraries {
    fn may_say(&self, place: &Metadata<'_>) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(place.callsite()).or_default().turn().is_some()
    }
}

impl<S: Subscriber> Filter<S> for Libraries {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &tracing::Event<'_>, _: &Context<'_, S>) -> bool {
        event.metadata().target().starts_with(OWN) || self.may_say(event.metadata())
    }
}

/// One JSON object a line on standard error: the shepherd runs under a service manager.
pub(crate) fn begin(level: Level) {
    let level = level.max(Level::INFO);
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(lines.with_filter(Libraries::default()))
        .with(tracing_subscriber::filter::LevelFilter::from_level(level))
        .init();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts what comes to it.
    struct Count(&'static AtomicUsize);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_librarys_flood_is_limited_place_by_place_and_our_own_is_left_alone() {
        static LINES: AtomicUsize = AtomicUsize::new(0);
        let subscriber = tracing_subscriber::registry().with(Count(&LINES).with_filter(Libraries::default()));
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..1000 {
                tracing::warn!(target: "h2::proto", "one place");
            }
            assert!((10..100).contains(&LINES.swap(0, Ordering::SeqCst)));
            tracing::warn!(target: "h2::proto", "another place");
            for _ in 0..100 {
                tracing::warn!(target: "tollfree_shepherd::metrics", "limited where it is said");
            }
            assert_eq!(LINES.load(Ordering::SeqCst), 101);
        });
    }
}
