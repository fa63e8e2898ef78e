//! Finds the line of a definition, which the parser does not keep.

/// The words of a file with their lines; comments and string literals are left out.
pub(super) struct Words {
    words: Vec<(usize, String)>,
    /// Lines of include statements, with the path.
    includes: Vec<(usize, String)>,
    /// Deepest nesting of brackets, and the line where it is reached.
    deepest: (usize, usize),
}

impl Words {
    pub(super) fn of(text: &str) -> Words {
        let mut out = Words { words: Vec::new(), includes: Vec::new(), deepest: (0, 1) };
        let (mut rest, mut line, mut depth) = (text, 1, 0usize);
        while let Some(first) = rest.chars().next() {
            let len = match first {
                '#' => line_len(rest),
                '/' if rest.starts_with("//") => line_len(rest),
                '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
                '"' | '\'' => {
                    let len = literal_len(rest, first);
                    if out.words.last().is_some_and(|(_, word)| word == "include") {
                        let path = rest.get(1..len.saturating_sub(1)).unwrap_or("");
                        out.includes.push((line, path.to_owned()));
                    }
                    len
                }
                _ if is_word(first) => {
                    let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                    out.words.push((line, rest[..len].to_owned()));
                    len
                }
                '<' | '(' | '[' | '{' => {
                    depth += 1;
                    if depth > out.deepest.0 {
                        out.deepest = (depth, line);
                    }
                    1
                }
                '>' | ')' | ']' | '}' => {
                    depth = depth.saturating_sub(1);
                    1
                }
                _ => first.len_utf8(),
            };
            line += rest[..len].matches('\n').count();
            rest = &rest[len..];
        }
        out
    }

    /// The line on which brackets nest deeper than `limit`, if they do.
    pub(super) fn deeper_than(&self, limit: usize) -> Option<usize> {
        (self.deepest.0 > limit).then_some(self.deepest.1)
    }

    pub(super) fn include_line(&self, path: &str) -> usize {
        self.includes.iter().find(|(_, found)| found == path).map_or(1, |(line, _)| *line)
    }

    /// The line of `keyword name`, or of the last of `members`, each looked for behind the one before.
    pub(super) fn line(&self, keyword: &str, name: &str, members: &[&str]) -> usize {
        let start = self.words.windows(2).position(|pair| pair[0].1 == keyword && pair[1].1 == name);
        let Some(mut at) = start.map(|at| at + 1) else { return 1 };
        for member in members {
            match self.words[at + 1..].iter().position(|(_, word)| word == member) {
                Some(more) => at += 1 + more,
                None => break,
            }
        }
        self.words[at].0
    }

    /// The line of the typedef or constant that is called `name`: its name does not follow the keyword at once.
    pub(super) fn alias_line(&self, keyword: &str, name: &str) -> usize {
        let starts = self.words.iter().enumerate().filter(|(_, (_, word))| word == keyword);
        let found = starts.filter_map(|(at, _)| {
            let behind = &self.words[at + 1..];
            let end = behind.iter().position(|(_, word)| word == keyword).unwrap_or(behind.len());
            behind[..end].iter().find(|(_, word)| word == name)
        });
        found.map(|(line, _)| *line).next().unwrap_or(1)
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn line_len(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Bytes of the string literal that begins `text`, quotes included.
fn literal_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Line and reason in the parser's report, `... line 3:5 - reason`; of several, the first.
pub(super) fn of_syntax_error(report: &str) -> (usize, String) {
    for (at, _) in report.match_indices("ine ") {
        let rest = &report[at + 4..];
        let Some((line, rest)) = rest.split_once(':') else { continue };
        let Some((column, rest)) = rest.split_once(" - ") else { continue };
        if let (Ok(line), Ok(_)) = (line.parse(), column.parse::<usize>()) {
            return (line, rest.lines().next().unwrap_or("").to_owned());
        }
    }
    (1, report.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// struct A\nstruct A {\n  1: i32 x = 5 # y\n  /* z\n */ 2: string y = 'a\\'{',\n}\ntypedef list<A>\n  As\ninclude \"b.thrift\"\n";

    #[test]
    fn lines_of_definitions_and_members() {
        let words = Words::of(TEXT);
        assert_eq!(words.line("struct", "A", &[]), 2);
        assert_eq!(words.line("struct", "A", &["x"]), 3);
        assert_eq!(words.line("struct", "A", &["y"]), 5);
        assert_eq!(words.line("struct", "B", &["y"]), 1);
        assert_eq!(words.alias_line("typedef", "As"), 8);
        assert_eq!(words.include_line("b.thrift"), 9);
        assert_eq!(words.deeper_than(1), None);
        assert_eq!(words.deeper_than(0), Some(2));
    }

    #[test]
    fn positions_in_reports() {
        let one = of_syntax_error("Failed to parse thrift file: inline at line 3:5 - found ';'");
        assert_eq!(one, (3, "found ';'".to_owned()));
        let many = of_syntax_error("inline (2 errors found):\n  1. Line 4:1 - a\n  2. Line 6:1 - b");
        assert_eq!(many, (4, "a".to_owned()));
        assert_eq!(of_syntax_error("odd").0, 1);
    }
}
