/// The recorded networks: `scripts/zoo/record.py graphs` writes this list.
const RECORDED: &[(&str, &[u8])] = &[
    ("gemma-2-2b", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/gemma-2-2b.json.gz"))),
    ("gemma-3-1b", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/gemma-3-1b.json.gz"))),
    ("glm-4-9b-0414", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/glm-4-9b-0414.json.gz"))),
    ("gpt-oss-20b", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/gpt-oss-20b.json.gz"))),
    ("granite-3.3-2b", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/granite-3.3-2b.json.gz"))),
    ("mixtral-8x7b", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/mixtral-8x7b.json.gz"))),
    ("modernbert-base", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/modernbert-base.json.gz"))),
    ("olmo-2-7b", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/olmo-2-7b.json.gz"))),
    ("qwen3-30b-a3b", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/qwen3-30b-a3b.json.gz"))),
    ("smollm3-3b", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/smollm3-3b.json.gz"))),
    ("starcoder2-3b", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/starcoder2-3b.json.gz"))),
    ("xlm-roberta-base", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/zoo/xlm-roberta-base.json.gz"))),
];
