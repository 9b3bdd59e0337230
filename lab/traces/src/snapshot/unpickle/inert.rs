//! Objects of classes as records: `{"class": "module name", "args": …, "state": …}`. Nothing is looked up or called.

use std::io::Read;

use super::super::opcodes as op;
use super::super::parse_error::Result;
use super::super::value::Value;
use super::Machine;

/// Longest name of a module or class.
const MAX_NAME: usize = 1000;

impl<R: Read> Machine<'_, R> {
    /// Runs an opcode that would look up, call or fill an object.
    pub(super) fn object(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            op::GLOBAL => {
                let name = format!("{} {}", self.line()?, self.line()?);
                self.class(&name)
            }
            op::STACK_GLOBAL => {
                let from = self.below(2)?;
                let names = (self.stack[from].as_text(), self.stack[from + 1].as_text());
                let (Some(module), Some(name)) = names else { return self.fail("STACK_GLOBAL of what is not text") };
                let name = format!("{} {}", self.document.texts.get(module), self.document.texts.get(name));
                self.stack.truncate(from);
                self.class(&name)
            }
            op::REDUCE | op::NEWOBJ => {
                let from = self.below(2)?;
                let (called, args) = (self.stack[from], self.stack[from + 1]);
                // Only a class may be called: the result of any other call is not known.
                let class = called.as_dict().filter(|dict| self.document.len(*dict) == 1);
                let Some(class) = class.and_then(|dict| self.document.get(dict, CLASS)) else {
                    return self.fail("a call of what is not a class");
                };
                self.stack.truncate(from);
                let object = self.document.dict([(CLASS, class), ("args", args)]);
                self.stack.push(object);
                Ok(())
            }
            op::BUILD => {
                let from = self.below(1)?;
                let state = self.stack[from];
                let object = self.under(from)?.as_dict().filter(|dict| self.document.get(*dict, CLASS).is_some());
                let Some(object) = object else { return self.fail("BUILD of what is not an object") };
                let key = self.document.text("state");
                self.document.set(object, &[key, state], self.at)?;
                self.stack.truncate(from);
                Ok(())
            }
            other => self.fail(op::refusal(other)),
        }
    }

    fn class(&mut self, name: &str) -> Result<()> {
        let name = self.document.text(name);
        let class: Value = self.document.dict([(CLASS, name)]);
        self.stack.push(class);
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        loop {
            match self.source.byte("a name")? {
                b'\n' => break,
                byte => line.push(byte),
            }
            if line.len() > MAX_NAME {
                return self.fail(format!("a name of more than {MAX_NAME} bytes"));
            }
        }
        match String::from_utf8(line) {
            Ok(line) => Ok(line),
            Err(_) => self.fail("a name is not UTF-8"),
        }
    }
}

const CLASS: &str = "class";
