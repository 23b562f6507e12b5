# SPDX-License-Identifier: Apache-2.0
"""A host as an enemy: with a host's password and any SQL, it reads no table, changes no other host's rows, and reaches
no file and no program."""
import psycopg2
import pytest

from server import Host, key

TABLES = ("meta", "host", "stamp", "class", "best", "answer", "complaint", "quarantine")


def refused(server, sql, user="h1"):
    """Runs SQL as a user; returns the server's refusal, or None."""
    connection = server.connect(user)
    try:
        connection.cursor().execute(sql)
        return None
    except psycopg2.Error as fault:
        return str(fault)
    finally:
        connection.close()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("user", ["h1", "boss"])
def test_no_table_can_be_read_or_written(server, table, user):
    for sql in (f"TABLE fleet.{table}", f"DELETE FROM fleet.{table}", f"INSERT INTO fleet.{table} DEFAULT VALUES",
                f"TRUNCATE fleet.{table}", f"DROP TABLE fleet.{table}", f"COPY fleet.{table} TO STDOUT",
                f"SELECT * FROM fleet.{table} FOR UPDATE", f"CREATE INDEX ON fleet.{table} ((1))"):
        assert "permission denied" in (refused(server, sql, user) or "done"), sql


@pytest.mark.parametrize("sql", [
    "COPY (SELECT 1) TO PROGRAM 'id'", "COPY (SELECT 1) TO '/tmp/x'", "CREATE TEMP TABLE t (x text)",
    "SELECT pg_read_file('/etc/passwd')", "SELECT pg_ls_dir('/')", "SELECT lo_import('/etc/passwd')",
    "SELECT lo_create(0)", "SELECT lo_from_bytea(0, 'x')", "SELECT lo_creat(-1)", "SELECT lo_export(1, '/tmp/x')",
    "SELECT pg_advisory_lock(726510)", "SELECT pg_advisory_xact_lock(726510)", "SELECT pg_try_advisory_lock(1)",
    "SET ROLE gemmd_fleet", "SET ROLE gemmd_fleet_admin", "SET ROLE postgres", "SET ROLE h2",
    "SET SESSION AUTHORIZATION h2", "SET session_replication_role = replica",
    "CREATE SCHEMA x", "CREATE TABLE public.t (x int)", "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION fleet1.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE TABLE fleet1.t (x int)",
    "CREATE EXTENSION dblink SCHEMA pg_catalog", "CREATE ROLE x", "ALTER ROLE h2 PASSWORD 'x'", "ALTER ROLE h1 SUPERUSER",
    "ALTER SYSTEM SET fsync = off", "CREATE DATABASE x", "GRANT gemmd_fleet TO h1",
    "ALTER FUNCTION fleet1.want SET search_path = public", "DROP FUNCTION fleet1.want",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'",
    "SELECT fleet.next_seq()", "SELECT fleet.me(1)", "SELECT fleet.withdraw_row(1, '')", "SELECT nextval('fleet.feed')",
    "SELECT setval('fleet.feed', 1)", "SELECT last_value FROM fleet.feed",
    "SELECT fleet1.withdraw(1, '')", "SELECT fleet1.pin(1)", "SELECT fleet1.distrust('a', '')", "SELECT fleet1.trust('a')",
    "SELECT fleet1.prune()", "SELECT fleet1.renew_epoch()", "SELECT fleet1.hosts()",
    "TABLE pg_authid", "SELECT * FROM pg_shadow",
])
def test_a_host_can_do_nothing_but_call_its_functions(server, sql):
    said = refused(server, sql)
    assert said is not None, "the server did it"
    assert any(word in said for word in ("permission denied", "must be", "must have", "does not exist", "no schema has been")), said


def test_a_role_without_the_group_cannot_even_connect(server):
    server.psql("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN")
    with pytest.raises(psycopg2.Error, match="permission denied for database"):
        server.connect("stranger")


def test_an_admin_of_the_fleet_has_no_host_functions(server):
    assert "permission denied" in refused(server, "SELECT fleet1.hello('a', '')", "boss")


def test_no_call_is_made_as_another_host(server):
    victim, enemy = Host(server, "victim"), Host(server, "enemy", "h2")
    [(_, _, fence, _)] = victim.want([key(1)], 1)
    for sql in ("SELECT fleet1.want({v}, 1, ARRAY['{k}']::uuid[], 1)", "SELECT fleet1.renew({v}, ARRAY[{f}], ARRAY['{k}']::uuid[])",
                "SELECT fleet1.release({v}, ARRAY[{f}], ARRAY['{k}']::uuid[])", "SELECT fleet1.feed({v}, 0, ARRAY[1], 1)",
                "SELECT fleet1.publish({v}, 1, 1, ARRAY['{k}']::uuid[], ARRAY['{k}']::uuid[], ARRAY[1], ARRAY[0], ARRAY['{{}}']::jsonb[])",
                "SELECT fleet1.complain({v}, 1, '')", "SELECT fleet1.bar({v}, 1, '', '{k}', '{{}}')", "SELECT fleet1.unbar({v}, '{k}')",
                "SELECT fleet1.barred({v}, ARRAY[1])", "SELECT fleet1.intern({v}, 'a', 'b')"):
        said = refused(server, sql.format(v=victim.id, f=fence, k=key(1)), "h2")
        assert said and f"host {victim.id} is not of role h2" in said, (sql, said)
    # with its own number, a host does not touch another host's lease
    for call in ("renew", "release"):
        enemy.all(f"SELECT fleet1.{call}(%s, %s, %s::uuid[])", enemy.id, [fence], [key(1)])
    assert victim.all("SELECT fleet1.renew(%s, %s, %s::uuid[])", victim.id, [fence], [key(1)]) == [(fence,)]


def test_a_host_whose_role_may_make_temporary_tables_does_not_fool_the_functions(server):
    server.psql("GRANT TEMPORARY ON DATABASE gemmd_fleet TO h2")
    victim = Host(server, "victim")
    enemy = Host(server, "enemy", "h2")
    enemy.all("CREATE TEMP TABLE host (id int, role name, distrusted text)")
    enemy.all("INSERT INTO host VALUES (%s, 'h2', NULL)", victim.id)
    enemy.all("CREATE TEMP TABLE meta AS SELECT '1 year'::interval AS ttl, 100000 AS row_bytes")
    enemy.all("CREATE FUNCTION pg_temp.me(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    enemy.all("SET search_path = pg_temp, fleet1, pg_catalog")
    with pytest.raises(psycopg2.Error, match="is not of role h2"):
        enemy.want([key(2)], 1, host=victim.id)
    assert enemy.row("SELECT ttl_ms FROM fleet1.hello('enemy', 'test')") == (30000,)
    server.psql("REVOKE TEMPORARY ON DATABASE gemmd_fleet FROM h2")


def test_every_function_of_the_schema_is_granted_on_purpose(server):
    rows = server.psql("SELECT proname, has_function_privilege('h1', p.oid, 'EXECUTE'), has_function_privilege('boss', p.oid, 'EXECUTE'),"
                       " prosecdef, proconfig::text LIKE '%search_path=fleet, pg_temp%' FROM pg_proc p"
                       " WHERE pronamespace = 'fleet1'::regnamespace ORDER BY 1").splitlines()
    told = {name: (host, admin) for name, host, admin, definer, path in (r.split("|") for r in rows) if definer == path == "t"}
    hosts = {"hello", "intern", "want", "renew", "release", "publish", "feed", "complain", "bar", "unbar", "barred"}
    admins = {"withdraw", "pin", "distrust", "trust", "prune", "renew_epoch", "hosts"}
    assert told == {**{n: ("t", "f") for n in hosts}, **{n: ("f", "t") for n in admins}}


def test_the_file_is_refused_a_second_time_and_changes_nothing(server):
    import server as servers
    with pytest.raises(RuntimeError, match="has the tables of a fleet already"):
        server.load(servers.SQL.read_text())
    assert Host(server, "again").hello[1:3] == (1, 1)


def test_gemmctl_prints_the_file_and_the_calls_of_an_admin(server):
    import subprocess

    import hosts

    def ctl(*words):
        return subprocess.run([hosts.BUILD / "client" / "gemmctl", "fleet", *words], capture_output=True, text=True)

    import server as servers
    lines = [line for line in servers.SQL.read_text().splitlines() if line]
    assert ctl("sql").stdout.splitlines() == lines
    Host(server, "it's").publish([key(5)])
    for words, answer in ((["pin", "1"], "2"), (["withdraw", "2", "--note", "it's"], ""), (["distrust", "it's"], "1"),
                          (["trust", "it's"], "1"), (["prune"], "0")):
        assert server.psql(ctl(*words).stdout, user="boss") == answer
    for words in (["pin"], ["pin", "x"], ["pin", "1;"], ["distrust"], ["prune", "1"], ["sql", "x"], ["nosuch"]):
        assert ctl(*words).returncode == 2
