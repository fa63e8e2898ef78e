//! Rounds: each case once in each, the rounds of all cases interleaved, so that a noisy minute hits all of them.

use std::fmt::Display;

/// A case, and what came of it so far.
#[derive(Debug)]
pub struct Tried<C, R> {
    /// What is measured.
    pub case: C,
    /// Each round.
    pub rounds: Vec<R>,
    /// Why there are none: a case that failed once has no figures.
    pub not_run: Option<String>,
}

/// A measurement that just ended, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Which of how many, what, and what came out.
    pub line: String,
    /// Whether nothing did.
    pub is_failure: bool,
}

/// The places of so many in a round, counted from 1: there and back again, so that none always follows the same neighbor.
pub fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |idx| if round % 2 == 1 { idx } else { count - 1 - idx })
}

/// Measures each case once a round. A case that fails is not tried again, and the others go on. `progress` hears of each measurement, of
/// which `outcome` says what came out.
pub async fn interleave<C: Copy + Display, R, E: Display>(
    cases: impl IntoIterator<Item = C>,
    round_count: usize,
    mut measure: impl AsyncFnMut(C) -> Result<R, E>,
    outcome: impl Fn(&R) -> String,
    mut progress: impl FnMut(&Told),
) -> Vec<Tried<C, R>> {
    let begun = |case| Tried { case, rounds: Vec::new(), not_run: None };
    let mut all: Vec<Tried<C, R>> = cases.into_iter().map(begun).collect();
    let total = round_count * all.len();
    let mut done = 0;
    for round in 1..=round_count {
        for idx in order(all.len(), round) {
            let tried = &mut all[idx];
            done += 1;
            if tried.not_run.is_some() {
                continue;
            }
            let came = match measure(tried.case).await {
                Ok(measured) => {
                    let words = outcome(&measured);
                    tried.rounds.push(measured);
                    words
                }
                Err(error) => {
                    tried.rounds.clear();
                    tried.not_run = Some(error.to_string());
                    format!("failed: {error}")
                }
            };
            let line = format!("{done:>3} of {total} · round {round} · {} · {came}", tried.case);
            progress(&Told { line, is_failure: tried.not_run.is_some() });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rounds_go_there_and_back_and_a_case_that_fails_is_left_out_of_the_next() {
        let mut measured = Vec::new();
        let mut steps = Vec::new();
        let measure = async |case: char| {
            measured.push(case);
            // The second time that it is b's turn.
            if case == 'b' && measured.len() > 3 { Err("no more") } else { Ok(measured.len()) }
        };
        let outcome = |came: &usize| format!("came as {came}");
        let all = interleave("abc".chars(), 3, measure, outcome, |told| steps.push(told.clone())).await;
        assert_eq!(measured.iter().collect::<String>(), "abccbaac");
        let of = |case: usize| (all[case].rounds.clone(), all[case].not_run.as_deref());
        assert_eq!(
            [of(0), of(1), of(2)],
            [(vec![1, 6, 7], None), (vec![], Some("no more")), (vec![3, 4, 8], None)]
        );
        let told = |line: &str, is_failure| Told { line: line.to_owned(), is_failure };
        assert_eq!(steps[4], told("  5 of 9 · round 2 · b · failed: no more", true));
        assert_eq!(steps[7], told("  9 of 9 · round 3 · c · came as 8", false));
    }
}
