//! Splits Rust source into code and comments, just enough to read paths and comments: comments and literals are
//! blanked, so that a path in a doc comment or a brace in a string is not taken for code.

/// A source file, as two texts; each has the lines and columns (in characters) of the original.
pub struct Scanned {
    /// The code: comments and the contents of literals are spaces.
    pub code: String,
    /// The comments: everything else is spaces.
    pub comments: String,
}

/// A piece of code that the rules read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// An identifier or number, `::`, or one character of punctuation.
    pub text: String,
    /// Its line, from 1.
    pub line: usize,
}

impl Token {
    /// Whether this is an identifier (or a keyword).
    pub fn is_ident(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// The text that a character goes to; the other text gets a space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    out: Scanned,
}

/// Splits `source` into its code and its comments.
pub fn scan(source: &str) -> Scanned {
    let out = Scanned { code: String::with_capacity(source.len()), comments: String::with_capacity(source.len()) };
    let mut scanner = Scanner { chars: source.chars().collect(), at: 0, out };
    while scanner.at < scanner.chars.len() {
        scanner.next_piece();
    }
    scanner.out
}

impl Scanner {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn take(&mut self, count: usize, kind: Kind) {
        for _ in 0..count {
            let Some(c) = self.peek(0) else { return };
            let keep = |wanted: Kind| if c == '\n' || kind == wanted { c } else { ' ' };
            self.out.code.push(keep(Kind::Code));
            self.out.comments.push(keep(Kind::Comment));
            self.at += 1;
        }
    }

    fn next_piece(&mut self) {
        match (self.peek(0), self.peek(1)) {
            (Some('/'), Some('/')) => {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.take(1, Kind::Comment);
                }
            }
            (Some('/'), Some('*')) => self.block_comment(),
            (Some('"'), _) => self.string(),
            (Some('\''), _) => self.quote(),
            (Some(c), _) if c.is_alphanumeric() || c == '_' => self.word(),
            _ => self.take(1, Kind::Code),
        }
    }

    /// Block comments nest.
    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.take(2, Kind::Comment);
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.take(2, Kind::Comment);
                    if depth == 0 {
                        return;
                    }
                }
                (Some(_), _) => self.take(1, Kind::Comment),
                (None, _) => return,
            }
        }
    }

    /// A string with escapes, from its opening quote.
    fn string(&mut self) {
        self.take(1, Kind::Code);
        while let Some(c) = self.peek(0) {
            match c {
                '"' => return self.take(1, Kind::Code),
                '\\' => self.take(2, Kind::Literal),
                _ => self.take(1, Kind::Literal),
            }
        }
    }

    /// A character, a label or a lifetime: a character has its closing quote after one character or an escape.
    fn quote(&mut self) {
        if self.peek(1) == Some('\\') {
            self.take(1, Kind::Code);
            self.take(2, Kind::Literal);
            while self.peek(0).is_some_and(|c| c != '\'') {
                self.take(1, Kind::Literal);
            }
            self.take(1, Kind::Code);
        } else if self.peek(2) == Some('\'') {
            self.take(1, Kind::Code);
            self.take(1, Kind::Literal);
            self.take(1, Kind::Code);
        } else {
            self.take(1, Kind::Code);
        }
    }

    /// A word; `r`, `br` and `cr` before quotes or hashes open a raw string instead.
    fn word(&mut self) {
        let length = self.chars[self.at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
        let raw = matches!(self.chars[self.at..self.at + length], ['r'] | ['b' | 'c', 'r']);
        self.take(length, Kind::Code);
        if !raw {
            return;
        }
        let hashes = self.chars[self.at..].iter().take_while(|c| **c == '#').count();
        if self.peek(hashes) != Some('"') {
            return;
        }
        self.take(hashes + 1, Kind::Code);
        while let Some(c) = self.peek(0) {
            if c == '"' && (1..=hashes).all(|i| self.peek(i) == Some('#')) {
                return self.take(hashes + 1, Kind::Code);
            }
            self.take(1, Kind::Literal);
        }
    }
}

/// The tokens of blanked code.
pub fn tokens(code: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (index, text) in code.lines().enumerate() {
        let line = index + 1;
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let length = match word {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                _ => word,
            };
            found.push(Token { text: rest[..length].to_string(), line });
            rest = rest[length..].trim_start();
        }
    }
    found
}
