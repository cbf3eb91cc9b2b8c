use super::*;

fn render(source: &str, context: &str) -> String {
    Template::compile(source).unwrap().render(context).unwrap_or_else(|e| panic!("{}", e.message))
}

fn failure(source: &str, context: &str) -> TextError {
    match Template::compile(source) {
        Ok(template) => template.render(context).expect_err(source),
        Err(error) => error,
    }
}

#[test]
fn blocks_are_trimmed_as_transformers_does() {
    let source = "{% for m in messages %}\n  {% if true %}\n{{ m.role }}\
        : {{ m['content'] }}\n  {% endif %}\n{% endfor %}\nend\n";
    let context =
        r#"{"messages": [{"role": "user", "content": "<b>&'"}, {"role": "a", "content": "x"}]}"#;
    assert_eq!(render(source, context), "user: <b>&'\na: x\nend");
}

#[test]
fn tojson_is_json_dumps() {
    let context =
        r#"{"x": {"b": [1, 2.0, 1e22, -0.5, 1e-7, true, null, "é\"\\\n\u0001</"], "a": {}}}"#;
    assert_eq!(
        render("{{ x | tojson }}", context),
        r#"{"b": [1, 2.0, 1e+22, -0.5, 1e-07, true, null, "é\"\\\n\u0001</"], "a": {}}"#
    );
    assert_eq!(
        render("{{ {'k': [1, {}], 'e': []} | tojson(indent=2) }}", "{}"),
        "{\n  \"k\": [\n    1,\n    {}\n  ],\n  \"e\": []\n}"
    );
    assert_eq!(
        render(
            "{{ x | tojson(separators=(',', ':'), sort_keys=true) }}",
            r#"{"x": {"b": [1, 2], "a": 3}}"#
        ),
        r#"{"a":3,"b":[1,2]}"#
    );
    assert_eq!(render("{{ 'é😀' | tojson(ensure_ascii=true) }}", "{}"), r#""\u00e9\ud83d\ude00""#);
    assert!(failure("{{ nothing | tojson }}", "{}").message.contains("Undefined"));
}

#[test]
fn raise_exception_is_recognisable() {
    let error = failure(
        "{% macro m() %}{{ raise_exception('Roles must \\'alternate\\'') }}{% endmacro %}{{ m() }}",
        "{}",
    );
    assert_eq!(error.code, Code::RaisedByTemplate);
    assert_eq!(error.message, "Roles must 'alternate'");
    assert_eq!(failure("a\n{{ x.y.z }}", "{}").code, Code::InvalidArgument);
    assert!(failure("a\n{{ x.y.z }}", "{}").message.contains("(line 2)"));
    assert!(failure("a\n\n{% if %}", "{}").message.contains("(line 3)"));
}

#[test]
fn python_methods_and_values() {
    for (source, expected) in [
        ("{{ ' a\\x1c'.strip() }}|{{ 'xxaxx'.lstrip('x') }}", "a|axx"),
        ("{{ 'a\\nb\\r\\nc'.splitlines() }}", "['a', 'b', 'c']"),
        ("{{ 'a-b-c'.rsplit('-', 1) }}{{ ' a b  c '.rsplit() }}{{ ' a b c'.rsplit(none, 1) }}",
         "['a-b', 'c']['a', 'b', 'c'][' a b', 'c']"),
        ("{{ 'a=b'.partition('=') }}{{ 'ab'.rpartition('=') }}", "('a', '=', 'b')('', '', 'ab')"),
        ("{{ 'abc'.removeprefix('a').removesuffix('c') }}", "b"),
        ("{{ 'abc'.index('c') }}{{ [1, 2].index(2) }}", "21"),
        ("{{ \"they're 3rd\".title() }}{{ '-7'.zfill(4) }}", "They'Re 3Rd-007"),
        ("{{ {'a': 1}.copy().items() | list }}", "[('a', 1)]"),
        ("{{ ', '.join(['a', 'b']) }}{{ 'AbC'.lower() }}{{ 'a'.startswith(('a', 'b')) }}",
         "a, babcTrue"),
        ("{{ none }}{{ true }}{{ 1.0 }}{{ 1e16 }}{{ [none, 1.5, 'a\\'b'] }}{{ {'k': (1,)} }}",
         "NoneTrue1.01e+16[None, 1.5, \"a'b\"]{'k': (1,)}"),
        ("{{ none is iterable }}{{ 'a' is iterable }}{{ 'a' is sequence }}{{ {} is sequence }}",
         "FalseTrueTrueTrue"),
        ("{{ '12' | int + 1 }}{{ '1.9' | int }}{{ 'x' | int }}{{ 'x' | int(default=7) }}", "13107"),
        ("{{ [1, 2.5] | string }}{{ ' a ' | trim }}{{ (1 ~ 2.0) }}", "[1, 2.5]a12.0"),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}\
            {% endfor %}", "13"),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"),
        ("{%- generation %} a {%- endgeneration %}", " a"),
        ("{% set ns = namespace(a=1) %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}\
            {{ ns.a }}", "4"),
        ("{% set ns = namespace(m=[]) %}{% for i in [1, 2] %}{% set ns.m = ns.m + [i] %}\
            {% endfor %}{{ ns.m }}", "[1, 2]"),
        ("{% set a, b = 1, 2 %}{% set t = a, b %}{{ t }}", "(1, 2)"),
        ("{% set ns = namespace({'a': 1}, ) %}{{ ns.a }}", "1"),
        ("{{ dict(a=1, b=[2]) }}", "{'a': 1, 'b': [2]}"),
        ("{{ [1, 2, 3] | batch(2) | list }}{{ [1, 2, 3][::-1] | list }}", "[[1, 2], [3]][3, 2, 1]"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ] {
        assert_eq!(render(source, "{}"), expected, "{source}");
    }
}

#[test]
fn time_formats_cannot_panic() {
    assert_eq!(failure("{{ strftime_now('%!') }}", "{}").code, Code::InvalidArgument);
}

#[test]
fn bad_contexts_are_errors() {
    let template = Template::compile("{{ a }}").unwrap();
    for context in ["", "[]", "{", "{\"a\": \"\\ud800\"}", "{\"__octavo_literal\": 1}"] {
        assert_eq!(template.render(context).unwrap_err().code, Code::InvalidArgument, "{context}");
    }
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(template.render(&deep).unwrap_err().message.contains("recursion limit"));
    let deepest = format!("{{\"a\": {}{}}}", "[".repeat(120), "]".repeat(120));
    assert_eq!(template.render(&deepest).unwrap().len(), 240);
}

#[test]
fn endless_work_ends() {
    for source in [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}\
            {% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s * 1000 %}\
            {% endfor %}",
        "{% for i in range(9999) %}{{ 'x' * 100000 }}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}\
            {% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}\
            {% endfor %}",
        "{{ ([1] * 100000000) }}",
        "{{ [[1] * 100000000] }}",
    ] {
        let error = failure(source, "{}");
        assert!(matches!(error.code, Code::ResourceExhausted | Code::InvalidArgument), "{source}");
    }
}

#[test]
fn memory_is_bounded_where_the_engine_cannot_foresee_it() {
    for source in [
        "{{ (['a' * 1000000] * 100000000) ~ '' }}",
        "{% macro m(x, n) %}{{ m(x + x, n - 1) if n else x ~ '' }}{% endmacro %}\
            {{ m(['a' * 1000000], 20) }}",
    ] {
        let template = Template::compile(source).unwrap();
        let error = template.render("{}").expect_err(source);
        assert_eq!(error.code, Code::ResourceExhausted, "{source}: {}", error.message);
        if error.message.contains("too much memory") {
            assert!(template.render("{}").unwrap_err().message.contains("before"));
        }
    }
}

#[test]
fn nesting_cannot_overflow_the_stack() {
    let many = 200_000;
    let repeat = |text: &str| text.repeat(many);
    let sources = [
        format!("{{{{ {}1{} }}}}", repeat("["), repeat("]")),
        format!("{{{{ {}1{} }}}}", repeat("("), repeat(")")),
        format!("{{{{ {}1 }}}}", repeat("-")),
        format!("{{{{ {}1 }}}}", repeat("not ")),
        format!("{{{{ 1{} }}}}", repeat("+1")),
        format!("{{{{ a{} }}}}", repeat("|e")),
        format!("{{{{ a{} }}}}", repeat("[0]")),
        format!("{{% set {}a{} = 1 %}}", repeat("("), repeat(")")),
        "{% if a %}".repeat(20_000),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(20_000)),
        "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}\
            {% endfor %}{{ ns.x }}"
            .to_string(),
        "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}\
            {% endfor %}"
            .to_string(),
        "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = ns.x, 1 %}\
            {% endfor %}"
            .to_string(),
        "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}\
            {% set ns.x = ns.x | batch(1) %}{% endfor %}"
            .to_string(),
        "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = dict(a=ns.x) %}\
            {% endfor %}"
            .to_string(),
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".to_string(),
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}".to_string(),
        "{% set ns = namespace() %}{% set ns.x | default([ns], true) %}{% endset %}\
            {{ ns }}"
            .to_string(),
        "{% for i in [1] %}{% set ns = namespace(l=loop) %}{% endfor %}".to_string(),
        format!("{{% set x = [1] %}}{}{{{{ x }}}}", "{% set x = [x] %}".repeat(20_000)),
    ];
    for source in &sources {
        let error = failure(source, "{}");
        assert!(!error.message.is_empty(), "{}", &source[..60]);
    }
}

#[test]
fn the_longest_permitted_tags_compile_or_fail_plainly() {
    let operators = template_source::MAX_TAG_CODE - 10;
    for source in [
        format!("{{{{ {}1 }}}}", "-".repeat(operators)),
        format!("{{{{ {}1 }}}}", "not ".repeat(operators / 3)),
        format!("{{{{ 1{} }}}}", "+1".repeat(operators / 2)),
        format!("{{{{ ''{} }}}}", "|e".repeat(operators / 2)),
        format!("{{{{ a{} }}}}", ".a".repeat(operators / 2)),
        format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(operators / 9)),
        format!(
            "{{% set {}a{} = 1 %}}",
            "(".repeat(operators / 2 - 5),
            ")".repeat(operators / 2 - 5)
        ),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(template_source::MAX_ELIF)),
    ] {
        if let Ok(template) = Template::compile(&source) {
            let _ = template.render("{}");
        }
    }
}

#[test]
fn long_conversations_fit() {
    let source = "{% set ns = namespace(system='') %}{% for m in messages %}\
        {% if m.role == 'system' %}\
        {% set ns.system = ns.system + m.content %}{% elif m.role in ['user', 'assistant'] %}\
        {{ '<|' + m['role'] + '|>' + m['content'] | trim + ('' if loop.last else '\\n') }}\
        {% endif %}{% endfor %}";
    let message = r#"{"role": "user", "content": "How far is the moon from the earth?"}"#;
    let context = format!("{{\"messages\": [{}]}}", vec![message; 20_000].join(","));
    assert!(render(source, &context).len() > 20_000 * 40);
}
