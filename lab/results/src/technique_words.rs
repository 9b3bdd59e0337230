//! The techniques that change a run's memory most, in the few words of a first line.

use serde_json::Value;

use super::findings::{Settings, plain};

/// Returns the techniques of a run: `LoRA rank 16`, `4-bit weights`. Empty for a plain one.
pub(super) fn techniques(settings: &Settings) -> Vec<String> {
    let said = |name: &str| settings.get(name).filter(|value| !matches!(value, Value::Null | Value::Bool(false)));
    let adapters = if said("dora").is_some() { "DoRA" } else { "LoRA" };
    let checkpoint = said("checkpoint").map(plain).filter(|what| what != "none");
    let save = said("checkpoint-save").is_some();
    let checkpointing = checkpoint.map(|_| if save { "selective checkpointing" } else { "checkpointing" });
    let words = [
        said("lora").map(|rank| format!("{adapters} rank {}", plain(rank))),
        said("load-in-4bit").map(|_| "4-bit weights".into()),
        said("load-in-8bit").map(|_| "8-bit weights".into()),
        said("freeze").map(|_| "frozen layers".into()),
        checkpointing.map(String::from),
        said("save-on-cpu").map(|_| "activations on the CPU".into()),
    ];
    words.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_changes_memory_most_has_a_word() {
        let said = |settings: Value| techniques(settings.as_object().unwrap()).join(", ");
        let plain = json!({ "lora": null, "load-in-4bit": false, "checkpoint": "none", "freeze": null });
        assert_eq!(said(plain), "");
        let qlora = json!({ "lora": 16, "load-in-4bit": true, "checkpoint": "blocks" });
        assert_eq!(said(qlora), "LoRA rank 16, 4-bit weights, checkpointing");
        let others =
            json!({ "lora": 8, "dora": true, "load-in-8bit": true, "checkpoint": "1,3", "checkpoint-save": "mm" });
        assert_eq!(said(others), "DoRA rank 8, 8-bit weights, selective checkpointing");
        assert_eq!(
            said(json!({ "freeze": "*,!head", "save-on-cpu": "pinned" })),
            "frozen layers, activations on the CPU"
        );
    }
}
