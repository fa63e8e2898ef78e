//! Rounds: each case once in each, the rounds of all cases interleaved, so that a noisy minute hits all of them.

use std::fmt;

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

/// One measurement that just ended.
#[derive(Debug)]
pub struct Step<'a, C, R> {
    /// Measurements done, this one included.
    pub done: usize,
    /// Measurements in all.
    pub total: usize,
    /// The round, from 1.
    pub round: usize,
    /// What was measured.
    pub case: C,
    /// What came out, or why nothing did.
    pub outcome: Result<&'a R, &'a str>,
}

/// Measures each case once a round; `progress` hears of each measurement. One that fails is not tried again, and the others go on.
pub async fn interleave<C: Copy, R, E: fmt::Display>(
    cases: impl IntoIterator<Item = C>,
    round_count: usize,
    mut measure: impl AsyncFnMut(C) -> Result<R, E>,
    mut progress: impl FnMut(&Step<'_, C, R>),
) -> Vec<Tried<C, R>> {
    let begun = |case| Tried { case, rounds: Vec::new(), not_run: None };
    let mut all: Vec<Tried<C, R>> = cases.into_iter().map(begun).collect();
    let total = round_count * all.len();
    let mut done = 0;
    for round in 1..=round_count {
        // There and back again, so that no case always follows the same neighbour.
        let order: Vec<usize> =
            if round % 2 == 1 { (0..all.len()).collect() } else { (0..all.len()).rev().collect() };
        for idx in order {
            let tried = &mut all[idx];
            done += 1;
            if tried.not_run.is_some() {
                continue;
            }
            match measure(tried.case).await {
                Ok(measured) => tried.rounds.push(measured),
                Err(error) => {
                    tried.rounds.clear();
                    tried.not_run = Some(error.to_string());
                }
            }
            let outcome = match (&tried.not_run, tried.rounds.last()) {
                (None, Some(round)) => Ok(round),
                (why, _) => Err(why.as_deref().unwrap_or("nothing was measured")),
            };
            progress(&Step { done, total, round, case: tried.case, outcome });
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
        let all = interleave("abc".chars(), 3, measure, |step| {
            steps.push((
                step.done,
                step.total,
                step.round,
                step.case,
                step.outcome.copied().map_err(str::to_owned),
            ));
        })
        .await;
        assert_eq!(measured.iter().collect::<String>(), "abccbaac");
        let of = |case: usize| (all[case].rounds.clone(), all[case].not_run.as_deref());
        assert_eq!(
            [of(0), of(1), of(2)],
            [(vec![1, 6, 7], None), (vec![], Some("no more")), (vec![3, 4, 8], None)]
        );
        assert_eq!(steps[4], (5, 9, 2, 'b', Err("no more".to_owned())));
        assert_eq!(steps[7], (9, 9, 3, 'c', Ok(8)));
    }
}
