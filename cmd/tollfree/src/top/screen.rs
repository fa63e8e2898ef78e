//! The live view, in a terminal.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Row, Table};

use super::Asked;
use super::rates::{GROUPS, METHODS, Rates};
use crate::failure::Failure;

/// Shows until the user has seen enough. The terminal is as before afterwards, also after a failure.
pub(super) fn show(gateway: &Asked, interval: Duration) -> Result<(), Failure> {
    // Before the screen is taken, so that what is wrong stays readable.
    let mut before = gateway.state()?;
    let mut terminal = ratatui::try_init().map_err(|error| no_screen(&error))?;
    let shown = (|| {
        let mut rates = Rates::between(&before, &before);
        let mut problem = None;
        loop {
            terminal
                .draw(|frame| draw(frame, &rates, problem.as_deref()))
                .map_err(|error| no_screen(&error))?;
            if is_over(Instant::now() + interval)? {
                return Ok(());
            }
            match gateway.state() {
                Ok(now) => {
                    rates = Rates::between(&before, &now);
                    (before, problem) = (now, None);
                }
                // It may come back.
                Err(Failure::Failed(words)) => problem = Some(words),
                Err(failure) => return Err(failure),
            }
        }
    })();
    ratatui::restore();
    shown
}

fn no_screen(error: &std::io::Error) -> Failure {
    Failure::Failed(format!("the terminal can't be used: {error}; add --once"))
}

/// Waits until then, unless the user wants to leave.
fn is_over(until: Instant) -> Result<bool, Failure> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if !event::poll(left).map_err(|error| no_screen(&error))? {
            return Ok(false);
        }
        let Event::Key(key) = event::read().map_err(|error| no_screen(&error))? else { continue };
        let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        let is_leave = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
        if key.kind == KeyEventKind::Press && (is_interrupt || is_leave) {
            return Ok(true);
        }
    }
}

fn draw(frame: &mut Frame<'_>, rates: &Rates, problem: Option<&str>) {
    let (groups, methods) = (rates.group_rows(), rates.method_rows());
    let [head, upper, lower, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(groups.len() as u16 + 3),
        Constraint::Min(5),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(rates.headline()).bold(), head);
    table(frame, upper, "BackendConnections", GROUPS, groups);
    table(frame, lower, "Methods", METHODS, methods);
    let foot_line = match problem {
        Some(words) => Line::from(words.to_owned()).red(),
        None => Line::from(format!("{}   q: leave", rates.refusals())).dim(),
    };
    frame.render_widget(foot_line, foot);
}

fn table<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &'static str,
    header: [(&'static str, u16); N],
    rows: Vec<[String; N]>,
) {
    let cells = |cells: [String; N]| {
        Row::new(cells.into_iter().enumerate().map(|(at, cell)| {
            let alignment = if at == 0 { Alignment::Left } else { Alignment::Right };
            Cell::from(Text::from(cell).alignment(alignment))
        }))
    };
    let widths = header.iter().enumerate().map(|(at, (_, width))| match at {
        0 => Constraint::Fill(1),
        _ => Constraint::Length(*width),
    });
    let head = cells(header.map(|(name, _)| name.to_owned())).style(Style::new().bold());
    let table =
        Table::new(rows.into_iter().map(cells), widths).header(head).block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use tollfree_control::State;

    use super::*;

    #[test]
    fn it_fits_any_screen() {
        let state: State = serde_json::from_str(
            r#"{"pid": 7, "uptime_ms": 1000, "connections": 1, "latency_bounds_s": [0.001],
            "groups": {"orders": [{"pid": 1234, "uid": 0, "backend_connection": 0, "services": [], "outstanding": 3, "calls": 10, "attached_ms": 5}]},
            "load_balancing": {"orders": {"policy": "round_robin", "waiting": 4, "imbalance": 0.0}},
            "methods": [{"method": "acme.v1.Orders/Get", "started": 10, "ended": {"OK": 10}, "latency_counts": [10, 0]}],
            "devices": {}, "connections_max": 9, "stage_bounds_s": [], "stages": [], "errors": [],
            "objects": {}, "refusals": {}}"#,
        )
        .unwrap();
        let rates = Rates::between(&State::default(), &state);
        for (width, height) in [(120, 40), (80, 24), (20, 5), (1, 1)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &rates, None)).unwrap();
            let screen = terminal.backend().to_string();
            if width == 120 {
                for word in [
                    "acme.v1.Orders/Get",
                    "orders",
                    "1234",
                    "round_robin",
                    "nothing was refused",
                    "10.0 calls/s",
                ] {
                    assert!(screen.contains(word), "{word} in {screen}");
                }
            }
        }
    }
}
