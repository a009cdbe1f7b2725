"""Plausible arguments for every command that the help of `./manage` and `./llmgateway` names.

A line is a command. `name <- command` runs it with --json and keeps the id of what it made for `{name}`. `1 | command`
must exit with 1, since it is refused here for a good reason; other commands must succeed.
"""

MANAGE = {
    "installation": """
        1 | serve
        serve-info
        migrate
        migrate litellm {litellm} --output {folder}/migration
        seed
        doctor
        status --all
        backup {folder}/backup.db
        restore {folder}/backup.db --verify
        credentials save {folder}/credentials.json
        credentials compare {folder}/credentials.json
        1 | transfer postgresql://nobody@127.0.0.1:9/nothing
        config check
        config show
        catalogue check
        1 | catalogue build
        1 | catalogue sync ollama
        check-catalogue
        rollups status
        rollups rebuild --from 2026-01-01 --to 2026-01-02
        jobs list
        jobs run books
        logs --limit 5
        spend --by model
        re-rate --from 2026-01-01 --to 2026-01-02
        1 | reconcile openai --invoice {folder}/nothing.csv
        default <- organizations list
        focus 2026-01 --organization {default}
        1 | explain nothing
        audit list --limit 5
        audit verify
    """,
    "accounts": """
        organization <- organizations create Acme
        organizations list
        organizations show {organization}
        organizations rename {organization} "Acme Inc"
        organizations set {organization} --leads-add-members
        organizations key-caps {organization} --max 50
        organizations policy {organization}
        organizations block {organization}
        organizations unblock {organization}
        owner <- members add {organization} boss@acme.example --role owner
        member <- members add {organization} dev@acme.example
        members invite {organization} new@acme.example --period-usage-limit 5 --period-usage-duration-value 1mo
        members list
        members show {member}
        members set-role {member} admin
        members deactivate {member}
        members activate {member}
        members reset-second-factor dev@acme.example
        gone <- members add {organization} gone@acme.example
        members export {gone}
        members delete {gone}
        echo a-long-password-0123456789 | members set-password dev@acme.example
        project <- projects create {organization} Apps
        projects list
        projects show {project}
        projects set {project} --name Services
        projects add-admin {project} {member}
        projects admins {project}
        projects remove-admin {project} {member}
        projects archive {project}
        projects restore {project}
        team <- teams create {organization} Research
        teams add {team} {member}
        teams add-lead {team} {member}
        teams leads {team}
        teams remove-lead {team} {member}
        teams list
        teams show {team}
        teams rename {team} "Applied research"
        key <- keys create --description CI --project {project}
        keys list --project {project}
        keys show {key}
        keys deactivate {key}
        keys activate {key}
        keys roll {key}
        limits set {key} --total 20
        keys tag {key} '{{"team": "search"}}'
        keys tags {key}
        limits show {key} {member}
        limits clear {key}
        session-budgets set {key} --session 5
        session-budgets show {key}
        session-budgets clear {key}
        batches list {project}
        1 | batches show {project} batch_unknown
        1 | batches cancel {project} batch_unknown
        project-jobs list {project} --kind batch
        1 | project-jobs show {project} batch_unknown
        1 | project-jobs cancel {project} batch_unknown
        1 | project-jobs download {project} batch_unknown --content errors
        files list {project} --purpose batch
        files usage
        1 | files show {project} file_unknown
        1 | files download {project} file_unknown
        1 | files delete {project} file_unknown
        rates set key {key} requests 60
        rates show
        rates clear key {key}
        rule <- rules add key {key} allow_models '{{"models": ["gpt-4o-mini"]}}'
        rules list {organization}
        rules switch {organization} {rule} inactive
        rules remove {organization} {rule}
        managed-settings set {organization} '{{"model": "sonnet"}}'
        managed-settings show {organization}
        managed-settings remove {organization}
        outcomes set --organization {organization} --compare-people
        outcomes settings --organization {organization}
        outcomes show --by person
        outcomes savings --range 7d
        outcomes wastes --range 7d
        teams remove {team} {member}
        teams delete {team}
        keys delete {key}
        spare <- keys create --description Spare --project {project}
        keys revoke {spare}
    """,
    "money": """
        default <- organizations list
        credits balance
        credits grant 5 --organization {default}
        credits adjust --organization {default} --note "a correction" -- -1
        credits history --organization {default}
        credits unlimited --organization {default}
        credits unlimited --off --organization {default}
        discount <- discounts set 0.1 --provider openai
        discounts list
        discounts remove {discount}
        limits put users 2 --subject "each user" --period day --timezone UTC --organization {default}
        limits list --organization {default}
        limits get users --organization {default}
        limits preview 1 --subject "each user" --period day --timezone UTC --organization {default}
        limits simulate users --days 7 --organization {default}
        limits raise users 5 --until 2099-01-01 --organization {default}
        1 | limits grant users nothing --organization {default}
        1 | limits decline users nothing --organization {default}
        limits requests users --organization {default}
        limits delete users --organization {default}
    """,
    "access": """
        organization <- organizations create Beta
        owner <- members add {organization} boss@beta.example --role owner
        echo sk-proj-0123456789abcdefghijklmnop | pkey <- provider-keys add {organization} openai --label Production
        provider-keys list {organization}
        provider-keys limit {pkey} 50
        provider-keys set {pkey} --label Main
        provider-keys test {pkey}
        echo sk-proj-abcdefghijklmnop0123456789 | provider-keys rotate {pkey}
        provider-keys switch {pkey} inactive
        provider-keys remove {pkey}
        provider-keys reseal
        custom-providers add {organization} acme https://llm.acme.example/v1
        custom-providers list {organization}
        custom-providers remove {organization} acme
        idp <- identity-providers add Login --organization {organization} --issuer https://127.0.0.1:9 --client-id llm
        identity-providers list --organization {organization}
        identity-providers set {idp} --organization {organization} --name Other
        identity-providers switch {idp} inactive --organization {organization}
        1 | identity-providers test {idp} --organization {organization}
        identity-providers add-domain {idp} acme.example --organization {organization}
        identity-providers verify-domain {idp} acme.example --organization {organization}
        identity-providers remove-domain {idp} acme.example --organization {organization}
        identity-providers delete {idp} --organization {organization}
        1 | sso require {owner} --organization {organization}
        sso show --organization {organization}
        sso make-optional --organization {organization}
        rule <- group-rules create engineers --organization {organization} --role developer
        group-rules list --organization {organization}
        group-rules preview engineers --organization {organization} --role admin
        group-rules set {rule} --organization {organization} --role admin
        group-rules delete {rule} --organization {organization}
        guard <- guardrails create Cards mask --detector payment_card --organization {organization}
        guardrails list --organization {organization}
        guardrails test '4111 1111 1111 1111' --organization {organization}
        guardrails findings --organization {organization}
        guardrails replay {guard} --days 7 --organization {organization}
        guardrails set {guard} --action block --organization {organization}
        guardrails except {guard} '4111 1111 1111 1111' --organization {organization}
        1 | guardrails unexcept {guard} 0123456789abcdef --organization {organization}
        guardrails delete {guard} --organization {organization}
        asked <- guardrails create P mask --checker presidio --address https://p.example --organization {organization}
        guardrails set {asked} --setting language=de --timeout-ms 500 --on-failure warn --organization {organization}
        guardrails delete {asked} --organization {organization}
        routes check '{{"otherwise":"gpt-4o-mini"}}' --organization {organization}
        routes set house '{{"otherwise":"gpt-4o-mini"}}' --alias house-default --organization {organization}
        routes simulate '{{"otherwise":"gpt-4o-mini"}}' --days 7 --organization {organization}
        routes publish house --organization {organization}
        routes list --organization {organization}
        routes show house --organization {organization}
        routes versions house --organization {organization}
        routes savings --days 7 --organization {organization}
        routes delete house --organization {organization}
        scim <- scim-tokens create Directory --organization {organization}
        scim-tokens list --organization {organization}
        scim-tokens revoke {scim} --organization {organization}
        account <- service-accounts create CI --organization {organization} --scope keys:read
        service-accounts list --organization {organization}
        service-accounts show {account} --organization {organization}
        service-accounts set {account} --organization {organization} --name Build
        service-accounts roll {account} --organization {organization}
        service-accounts switch {account} inactive --organization {organization}
        service-accounts delete {account} --organization {organization}
        1 | workload-identities create CI --issuer https://127.0.0.1:9 --audience llm --claims '{{"sub": "x"}}'
        workload-identities list --organization {organization}
        1 | workload-identities show wid_none
        1 | workload-identities set wid_none --name Other
        1 | workload-identities switch wid_none inactive
        1 | workload-identities delete wid_none
        hook <- alerts add http://127.0.0.1:9/hook --organization {organization}
        alerts list --organization {organization}
        1 | alerts test {hook} --organization {organization}
        view <- views create Spend --query groupBy=user --organization {organization}
        views list --organization {organization}
        views update {view} --shared --organization {organization}
        sent <- views subscribe {view} --to {hook} --weekday friday --hour 9 --organization {organization}
        views subscriptions --organization {organization}
        views reschedule {sent} --hour 8 --organization {organization}
        views send {sent} --organization {organization}
        views unsubscribe {sent} --organization {organization}
        views delete {view} --organization {organization}
        shares list --organization {organization}
        1 | shares revoke share_none --organization {organization}
        alerts remove {hook} --organization {organization}
    """,
}
CLIENT = """
    auth status
    auth whoami
    orgs list
    orgs use "{organization}"
    projects list
    projects use "{project}"
    credits
    key <- keys create -d Laptop --no-save
    keys list --all
    keys update {key} --deactivate
    keys limit Laptop -l 20
    budget get {key}
    budget set {key} --period-limit 5 --period 1d
    budget put everything 500 --subject organization --period 1mo
    budget put everything 400 --subject organization --period 1mo --dry-run
    budget simulate everything
    budget raise everything 50 --until 2d
    budget ask everything 100 --until 1w --note "A long run"
    budget list
    budget delete everything
    budget
    keys tag {key} team=search
    guard <- guardrails add Cards mask -d payment_card
    guardrails list
    guardrails test "4111 1111 1111 1111"
    guardrails replay {guard}
    guardrails set {guard} --probation
    guardrails except {guard} "4111 1111 1111 1111"
    guardrails findings
    guardrails delete {guard}
    file <- files upload {folder}/lines.jsonl --purpose batch
    files list
    files show {file}
    files download {file} -o {folder}/copy.jsonl
    job <- jobs send {folder}/lines.jsonl --endpoint /v1/embeddings
    jobs watch {job}
    jobs show {job}
    jobs list
    jobs download {job} -o {folder}/results.jsonl
    jobs wait {job}
    jobs errors {job}
    1 | jobs cancel {job}
    files delete {file} -y
    routes check {folder}/route.json
    routes simulate {folder}/route.json
    routes set house {folder}/route.json
    routes publish house
    routes list
    routes show house
    routes versions house
    routes savings
    routes delete house
    members roles
    members list
    members invite anna@acme.example --role viewer
    members show {member}
    members role {member} developer
    members limit {member} -l 40
    members deactivate {member} -y
    members activate {member}
    teams list
    teams add Research {member}
    teams add-lead Research {member}
    teams leads Research
    teams remove-lead Research {member}
    teams limit Research --period-limit 90 --period 1mo
    teams remove Research {member}
    projects add-admin "{project}" {member}
    projects admins "{project}"
    projects remove-admin "{project}" {member}
    usage --by model
    usage shares --by person
    usage outcomes --by team
    usage sources -p "{project}"
    usage savings
    view <- views create Teams --query groupBy=team
    views list
    views update {view} --shared
    subscription <- views subscribe {view} --to {hook}
    views subscriptions
    views reschedule {subscription} --hour 9
    views send {subscription}
    views unsubscribe {subscription}
    views delete {view}
    models -s gpt-4o-mini
    launch --list
    launch --dry-run claude
    configure --dry-run claude
    configure --dry-run opencode
    list
    init {folder}/project -t batch-script --no-install
    in {folder}/project: add tool weather
    in {folder}/project: upgrade --check
    1 | in {folder}/nothing: dev
    docs quickstart
    chat Hello
    logs -n 5
    shares list
    1 | shares create req_none
    1 | shares revoke share_none
    1 | serve
    doctor
    completion bash
    keys roll {key} -y
    keys delete {key} -y
    auth logout
    1 | auth login --email nobody@localhost
"""
