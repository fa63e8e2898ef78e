//! The tests that are under way in this process, and what is to be looked at when one is over.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tollfree_testkit::Census;

/// Longer than a machine that does many things takes for what is on its way.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

type Check = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    static CHECKS: RefCell<Vec<Check>> = const { RefCell::new(Vec::new()) };
    static COUNTS_TASKS: Cell<bool> = const { Cell::new(true) };
}

/// The tasks that the test of this thread leaves are not counted: they are another library's, which is there to be compared with.
pub fn leave_tasks_uncounted() {
    COUNTS_TASKS.set(false);
}

/// Whether those of the test that is over are counted.
pub(crate) fn counts_tasks() -> bool {
    COUNTS_TASKS.replace(true)
}

/// Has something looked at when the test of this thread is over, while its tasks go on: what a laboratory that was dropped still
/// runs may be counted then, and is ended by dropping what the check has. Only for tests on a current-thread runtime, or called by
/// the test itself.
pub fn afterwards(check: impl Future<Output = ()> + 'static) {
    CHECKS.with_borrow_mut(|checks| checks.push(Box::pin(check)));
}

/// Spawns a task that goes on for as long as its test, and is ended then: it is not counted.
pub fn spawn_for_test<F>(task: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let task = tokio::spawn(task);
    let ends = task.abort_handle();
    afterwards(async move { ends.abort() });
    task
}

/// Looks at all of that.
pub(crate) async fn look() {
    loop {
        let checks = CHECKS.take();
        if checks.is_empty() {
            return;
        }
        for check in checks {
            check.await;
        }
    }
}

/// What the descriptors of this process are.
fn descriptors() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

#[derive(Debug)]
struct Tests {
    count: usize,
    /// What the process had before the first of them.
    before: Option<Census>,
}

static TESTS: Mutex<Tests> = Mutex::new(Tests { count: 0, before: None });

/// One that is under way.
#[derive(Debug)]
pub(crate) struct UnderWay;

impl UnderWay {
    pub(crate) fn begin() -> UnderWay {
        let mut tests = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
        if tests.before.is_none() {
            // What the first runtime of a process makes for all of them stays.
            drop(tokio::runtime::Builder::new_current_thread().enable_all().build());
            tests.before = Some(Census::take());
        }
        tests.count += 1;
        UnderWay
    }
}

impl Drop for UnderWay {
    /// The last one looks for what was left by any.
    fn drop(&mut self) {
        let began = Instant::now();
        let mut is_over = false;
        loop {
            let mut tests = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
            if !std::mem::replace(&mut is_over, true) {
                tests.count -= 1;
            }
            // Another that began meanwhile, or goes on, looks when it is over.
            let Some(before) = tests.before.filter(|_| tests.count == 0 && !std::thread::panicking()) else {
                return;
            };
            let now = Census::take();
            drop(tests);
            if now.is_within(&before) {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "tests have left more than there was: {before:?} before, {now:?} now: {:?}",
                descriptors()
            );
            sleep(PAUSE);
        }
    }
}
