-- SPDX-License-Identifier: Apache-2.0
-- The fleet's tables (schema 1) and functions (API 1), for PostgreSQL 14 and newer. An admin runs this file once, in a
-- database of the fleet's own: gemmctl fleet sql | psql -d gemmd_fleet. docs/fleet.md describes the server.
--
-- Hosts call functions of schema fleet1 and have no right to any table. A function runs with the rights of gemmd_fleet,
-- and asks session_user, the login role, who is calling. A later API gets a schema of its own (fleet2) over the same
-- tables. So old and new hosts share a fleet.
--
-- Deadlocks. Many hosts want and publish the same keys at once, so each function takes its locks in this order:
--   1. the caller's row of `host`
--   2. the slots of all keys, in the order of (slot, key). A slot is an advisory lock; equal hashes share a slot.
--   3. the lock of the feed
--   4. rows of `answer`, in the order of (slot, key)
-- fleet1.want waits for no lock: it leaves a key out when the key's slot or row is locked.
BEGIN;
DO $$ DECLARE r text; BEGIN
    IF to_regnamespace('fleet') IS NOT NULL THEN
        RAISE 'database % has the tables of a fleet already', current_database();
    END IF;
    FOREACH r IN ARRAY ARRAY['gemmd_fleet', 'gemmd_host', 'gemmd_fleet_admin'] LOOP
        IF to_regrole(r) IS NULL THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', r);
        END IF;
    END LOOP;
    -- A host can connect, and can do nothing in the database but call the functions.
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO gemmd_host, gemmd_fleet_admin', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO gemmd_fleet', current_database());
    -- Large objects would let a host fill the disk, and session locks would let a host stop the others.
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        FOR r IN SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
                AND proname ~ '^(lo_.*|lowrite|loread|pg_(try_)?advisory_.*)$' LOOP
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', r);
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO gemmd_fleet', r);
        END LOOP;
    ELSE
        RAISE NOTICE 'not a superuser: hosts keep the right to make large objects and to take advisory locks';
    END IF;
END $$;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT gemmd_fleet TO CURRENT_USER;
CREATE SCHEMA fleet AUTHORIZATION gemmd_fleet;
CREATE SCHEMA fleet1 AUTHORIZATION gemmd_fleet;
SET LOCAL ROLE gemmd_fleet;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
SET LOCAL search_path = fleet, pg_temp;

---- tables ----------------------------------------------------------------------------------------------------------

-- A single row: settings. An admin changes them by UPDATE. grace must be at least ttl + 45 s, because a host
-- that lost the server comes back within 45 s.
CREATE TABLE meta (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    schema int NOT NULL, api_min int NOT NULL, api_max int NOT NULL,
    epoch uuid NOT NULL DEFAULT gen_random_uuid(),  -- another epoch: hosts forget all numbers and publish all rows again
    timeline text NOT NULL DEFAULT '',              -- of the server's log, when the last number was given
    bucket_scheme text NOT NULL DEFAULT 'sqrt2',
    ttl interval NOT NULL DEFAULT '30 s',           -- a lease ends so long after its last renewal
    grace interval NOT NULL DEFAULT '75 s',         -- no lease ends so soon after the server's start
    poll_ms int NOT NULL DEFAULT 1000,              -- a waiting host reads the feed so often
    row_bytes int NOT NULL DEFAULT 16384,           -- a row's JSON at most
    leases_per_host int NOT NULL DEFAULT 256, hosts_per_role int NOT NULL DEFAULT 1024,
    rows_per_hour int NOT NULL DEFAULT 20000, names_per_hour int NOT NULL DEFAULT 64);
INSERT INTO meta (schema, api_min, api_max) VALUES (1, 1, 1);

-- A database of a host. hour, rows and names count what the host added in an hour.
CREATE TABLE host (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    role name NOT NULL, name text NOT NULL CHECK (length(name) BETWEEN 1 AND 128), build text NOT NULL CHECK (length(build) <= 64),
    first timestamptz NOT NULL DEFAULT now(), seen timestamptz NOT NULL DEFAULT now(),
    distrusted text,  -- why; NULL: trusted
    hour timestamptz NOT NULL DEFAULT now(), rows int NOT NULL DEFAULT 0, names int NOT NULL DEFAULT 0,
    UNIQUE (role, name)) WITH (fillfactor = 60);
CREATE TABLE stamp (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, stamp text NOT NULL UNIQUE CHECK (length(stamp) BETWEEN 1 AND 159),
    host int NOT NULL REFERENCES host, seen timestamptz NOT NULL DEFAULT now());
CREATE TABLE class (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, class text NOT NULL UNIQUE CHECK (length(class) BETWEEN 1 AND 191),
    host int NOT NULL REFERENCES host);

-- The feed: rows are only added. A row of source withdrawn says that hosts drop the row `withdraws`.
CREATE TABLE best (
    seq bigint PRIMARY KEY,   -- the fleet's number
    id uuid NOT NULL UNIQUE,  -- made by the host from the row, so that a repeated publication is known
    key uuid NOT NULL, stamp int NOT NULL REFERENCES stamp, class int NOT NULL REFERENCES class,
    source text NOT NULL CHECK (source IN ('tuned', 'manual', 'withdrawn')),
    answered bool NOT NULL DEFAULT false,  -- the row was its key's answer when it got its number
    withdraws bigint, withdrawn bool NOT NULL DEFAULT false,
    host int NOT NULL REFERENCES host, fence bigint NOT NULL DEFAULT 0,
    at timestamptz NOT NULL DEFAULT clock_timestamp(), "row" jsonb NOT NULL);
CREATE INDEX best_feed ON best (class, seq);
CREATE INDEX best_key ON best (key, stamp, seq);
CREATE INDEX best_host ON best (host);
-- The answer of a (key, stamp), and before an answer is known, the lease of the key. seq NULL: no answer.
CREATE TABLE answer (
    key uuid, stamp int, seq bigint, host int NOT NULL, fence bigint NOT NULL,
    taken timestamptz NOT NULL DEFAULT clock_timestamp(), until timestamptz NOT NULL, PRIMARY KEY (key, stamp))
    WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX answer_lease ON answer (host) WHERE seq IS NULL;
CREATE INDEX answer_seq ON answer (seq);
CREATE TABLE complaint (
    seq bigint REFERENCES best ON DELETE CASCADE, host int REFERENCES host, reason text NOT NULL CHECK (length(reason) <= 320),
    at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (seq, host));
-- A variant that crashed or hung a runner. host 0 is an admin.
CREATE TABLE quarantine (
    variant uuid, class int REFERENCES class, driver text CHECK (length(driver) <= 32), host int,
    at timestamptz NOT NULL DEFAULT now(), "row" jsonb NOT NULL, PRIMARY KEY (variant, class, driver, host));
CREATE SEQUENCE fence;
CREATE SEQUENCE feed;

---- parts of the functions ------------------------------------------------------------------------------------------

-- The host of this call. The login role decides, not the parameter.
CREATE FUNCTION me(h int) RETURNS int LANGUAGE plpgsql STABLE SET search_path = fleet, pg_temp AS $$ DECLARE why text; BEGIN
    SELECT coalesce(distrusted, '') INTO why FROM host WHERE id = h AND role = session_user;
    IF NOT FOUND THEN
        RAISE 'fleet: host % is not of role %', h, session_user USING ERRCODE = '42501';
    ELSIF why <> '' THEN
        RAISE 'fleet: this host is distrusted: %', why USING ERRCODE = '42501';
    END IF;
    RETURN h; END $$;
-- Charges the host for rows and names (stamps, classes) that a call adds. Locks the host's row.
CREATE FUNCTION charge(h int, n_rows int, n_names int) RETURNS void LANGUAGE plpgsql SET search_path = fleet, pg_temp AS $$ BEGIN
    UPDATE host SET hour = CASE WHEN hour < now() - interval '1 h' THEN now() ELSE hour END,
        rows = CASE WHEN hour < now() - interval '1 h' THEN 0 ELSE rows END + n_rows,
        names = CASE WHEN hour < now() - interval '1 h' THEN 0 ELSE names END + n_names
        WHERE id = h AND role = session_user AND distrusted IS NULL;
    PERFORM me(h);  -- after the row's lock: fleet1.distrust may have held it
    PERFORM FROM host, meta WHERE id = h AND (rows > rows_per_hour OR names > names_per_hour);
    IF FOUND THEN
        RAISE 'fleet: this host added too many rows or names in an hour' USING ERRCODE = '53400';
    END IF; END $$;
CREATE FUNCTION check_count(n int, most int) RETURNS void LANGUAGE plpgsql IMMUTABLE SET search_path = fleet, pg_temp AS $$ BEGIN
    IF n > most THEN
        RAISE 'fleet: % keys in a call; at most % are allowed', n, most USING ERRCODE = '54000';
    END IF; END $$;
-- 4096 slots: they fit into the server's table of locks.
CREATE FUNCTION slot(k uuid, s int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 726510 * 4294967296 + (uuid_hash_extended(k, s) & 4095) $$;
-- True when a lease has ended, by the server's clock alone. After the server's start, holders have the time `grace` to
-- come back. A lease whose end lies far ahead was written before the clock was set back.
CREATE FUNCTION over(u timestamptz) RETURNS bool LANGUAGE sql STABLE SET search_path = fleet, pg_temp AS $$
    SELECT greatest(u, CASE WHEN u > '-infinity' THEN pg_postmaster_start_time() + grace ELSE u END) < clock_timestamp()
        OR u > clock_timestamp() + 10 * ttl FROM meta $$;
-- Gives a number of the feed. The lock is held until the commit, so numbers become visible in their order: a host that has
-- read up to a number has missed none. A server that was restored or failed over has another timeline and
-- may have lost the last numbers: numbers go on above a gap, so that no number is given twice.
CREATE FUNCTION next_seq() RETURNS bigint LANGUAGE plpgsql SET search_path = fleet, pg_temp AS $$
DECLARE now_timeline text := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8); BEGIN
    PERFORM pg_advisory_xact_lock(726510);
    IF (SELECT timeline FROM meta) NOT IN ('', now_timeline) THEN
        PERFORM setval('feed', (SELECT greatest((SELECT last_value FROM feed), max(seq)) FROM best) + 1000000);
    END IF;
    UPDATE meta SET timeline = now_timeline WHERE timeline <> now_timeline;
    RETURN nextval('feed'); END $$;
-- Who speaks, when a host complains or bars: the host among hosts of a role, else its role. So a role that registers two names is
-- not two hosts to others.
CREATE FUNCTION voice(h host, of_role name) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN h.role = of_role THEN '#' || h.id ELSE h.role::text END $$;
-- Takes back a row. Another host's newest row becomes the answer again, else the key is free.
CREATE FUNCTION withdraw_row(p_seq bigint, p_reason text) RETURNS void LANGUAGE plpgsql SET search_path = fleet, pg_temp AS $$
DECLARE old best;  other best;  s bigint; BEGIN
    s := next_seq();
    UPDATE best SET withdrawn = true WHERE seq = p_seq AND NOT withdrawn AND source <> 'withdrawn' RETURNING * INTO old;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO best (seq, id, key, stamp, class, source, withdraws, host, "row") VALUES (s, gen_random_uuid(), old.key, old.stamp,
        old.class, 'withdrawn', p_seq, old.host, jsonb_build_object('reason', left(p_reason, 320)));
    PERFORM FROM answer WHERE key = old.key AND stamp = old.stamp AND seq = p_seq FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT b.* INTO other FROM best b JOIN host h ON h.id = b.host WHERE b.key = old.key AND b.stamp = old.stamp AND NOT b.withdrawn
        AND b.source <> 'withdrawn' AND b.host <> old.host AND h.distrusted IS NULL ORDER BY b.seq DESC LIMIT 1;
    IF FOUND THEN  -- again, with a new number: hosts that read the feed find it
        s := next_seq();
        INSERT INTO best (seq, id, key, stamp, class, source, host, fence, answered, "row") VALUES (s, gen_random_uuid(), other.key,
            other.stamp, other.class, other.source, other.host, other.fence, true, other."row");
        UPDATE answer SET seq = s, host = other.host, fence = other.fence WHERE key = old.key AND stamp = old.stamp;
    ELSE
        UPDATE answer SET seq = NULL, until = '-infinity' WHERE key = old.key AND stamp = old.stamp;
    END IF; END $$;

---- functions of hosts ----------------------------------------------------------------------------------------------

-- head: the last number of the feed. A host that calls again within an hour writes nothing. A host whose name another role has
-- is registered as name@role: hosts know each other by these names.
CREATE FUNCTION fleet1.hello(p_name text, p_build text, OUT host int, OUT api_min int, OUT api_max int, OUT epoch uuid,
    OUT timeline text, OUT head bigint, OUT scheme text, OUT ttl_ms int, OUT poll_ms int, OUT fsync bool)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp SET lock_timeout = '3s' AS $$ BEGIN
    IF EXISTS (SELECT FROM host h WHERE h.name = p_name AND h.role <> session_user)
            AND NOT EXISTS (SELECT FROM host h WHERE h.name = p_name AND h.role = session_user) THEN
        p_name := p_name || '@' || session_user;
    END IF;
    SELECT h.id INTO host FROM host h WHERE h.role = session_user AND h.name = p_name AND h.build = p_build
        AND h.seen > now() - interval '1 h';
    IF NOT FOUND THEN
        PERFORM FROM host h WHERE h.role = session_user AND h.name = p_name;
        IF NOT FOUND AND (SELECT count(*) >= hosts_per_role FROM host h, meta WHERE h.role = session_user GROUP BY hosts_per_role) THEN
            RAISE 'fleet: role % has too many hosts', session_user USING ERRCODE = '53400';
        END IF;
        INSERT INTO host AS h (role, name, build) VALUES (session_user, p_name, p_build) ON CONFLICT (role, name)
            DO UPDATE SET seen = now(), build = excluded.build RETURNING h.id INTO host;
    END IF;
    PERFORM me(host);
    SELECT m.api_min, m.api_max, m.epoch, m.bucket_scheme, extract(epoch FROM m.ttl) * 1000, m.poll_ms
        INTO api_min, api_max, epoch, scheme, ttl_ms, poll_ms FROM meta m;
    timeline := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    fsync := current_setting('fsync')::bool;
    SELECT coalesce(max(seq), 0) INTO head FROM best; END $$;
-- Gives the ids of a stamp and a class.
CREATE FUNCTION fleet1.intern(p_host int, p_stamp text, p_class text, OUT stamp_id int, OUT class_id int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp SET lock_timeout = '3s' AS $$ BEGIN
    PERFORM me(p_host);
    SELECT s.id INTO stamp_id FROM stamp s WHERE s.stamp = p_stamp AND s.seen > now() - interval '1 day';
    SELECT c.id INTO class_id FROM class c WHERE c.class = p_class;
    IF stamp_id IS NULL OR class_id IS NULL THEN
        PERFORM charge(p_host, 0, (NOT EXISTS (SELECT FROM stamp s WHERE s.stamp = p_stamp))::int + (class_id IS NULL)::int);
        INSERT INTO stamp AS s (stamp, host) VALUES (p_stamp, p_host) ON CONFLICT (stamp) DO UPDATE SET seen = now()
            RETURNING s.id INTO stamp_id;
        INSERT INTO class AS c (class, host) VALUES (p_class, p_host) ON CONFLICT (class) DO UPDATE SET class = excluded.class
            RETURNING c.id INTO class_id;
    END IF; END $$;
-- Asks for keys and takes leases of at most p_take of them. kind: k answered (num: the row's number; r: the row), g granted
-- (num: fence), h the host `name` tunes the key (num: ms until its lease ends), f free, and not taken. Waits for no lock.
CREATE FUNCTION fleet1.want(p_host int, p_stamp int, p_keys uuid[], p_take int)
RETURNS TABLE (kind "char", k uuid, num bigint, name text, r jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp SET lock_timeout = '3s' AS $$
DECLARE got uuid[] := '{}';  x uuid;  t interval := (SELECT ttl FROM meta);
    room int := least(p_take, (SELECT m.leases_per_host - count(a.key) FROM meta m LEFT JOIN answer a ON a.host = p_host
        AND a.seq IS NULL AND NOT over(a.until) AND NOT a.key = ANY (p_keys) GROUP BY m.leases_per_host)); BEGIN
    PERFORM me(p_host), check_count(cardinality(p_keys), 256);
    IF room > 0 THEN
        -- A lease of this host counts as free: it is a grant whose answer was lost. It keeps its time `taken`, so that after
        -- 15 minutes it ends (see renew), and others get the key. Each host takes the keys in another order.
        FOR x IN SELECT DISTINCT u, a.host IS NOT DISTINCT FROM p_host AS own, uuid_hash_extended(u, p_host) AS place
                FROM unnest(p_keys) u LEFT JOIN answer a ON a.key = u AND a.stamp = p_stamp
                WHERE u IS NOT NULL AND (a.key IS NULL OR (a.seq IS NULL AND (over(a.until)
                    OR (a.host = p_host AND a.taken > clock_timestamp() - interval '15 min'))))
                ORDER BY own DESC, place LOOP
            CONTINUE WHEN NOT pg_try_advisory_xact_lock(slot(x, p_stamp));
            INSERT INTO answer AS a (key, stamp, host, fence, until) VALUES (x, p_stamp, p_host, nextval('fence'), clock_timestamp() + t)
                ON CONFLICT DO NOTHING RETURNING a.fence INTO num;
            IF NOT FOUND THEN
                UPDATE answer a SET host = p_host, fence = nextval('fence'), until = clock_timestamp() + t,
                    taken = CASE WHEN over(a.until) THEN clock_timestamp() ELSE a.taken END
                    WHERE a.ctid = (SELECT o.ctid FROM answer o WHERE o.key = x AND o.stamp = p_stamp AND o.seq IS NULL
                        AND (over(o.until) OR (o.host = p_host AND o.taken > clock_timestamp() - interval '15 min'))
                        FOR UPDATE SKIP LOCKED) RETURNING a.fence INTO num;
            END IF;
            IF FOUND THEN
                got := got || x;  kind := 'g';  k := x;  r := NULL;
                RETURN NEXT;
            END IF;
            EXIT WHEN cardinality(got) >= room;
        END LOOP;
    END IF;
    RETURN QUERY SELECT CASE WHEN a.seq IS NOT NULL THEN 'k' WHEN a.key IS NULL OR over(a.until) OR a.host = p_host THEN 'f' ELSE 'h' END::"char",
        u, CASE WHEN a.seq IS NOT NULL THEN a.seq WHEN over(a.until) THEN 0
            ELSE (extract(epoch FROM a.until - clock_timestamp()) * 1000)::bigint END, h.name, b."row"
        FROM unnest(p_keys) u LEFT JOIN answer a ON a.key = u AND a.stamp = p_stamp LEFT JOIN best b ON b.seq = a.seq
        LEFT JOIN host h ON h.id = a.host
        WHERE u IS NOT NULL AND NOT u = ANY (got); END $$;
-- Renews leases; returns the fences that are still held. A lease of a search that takes 15 minutes is not renewed: the host hangs.
CREATE FUNCTION fleet1.renew(p_host int, p_fences bigint[], p_keys uuid[]) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp SET lock_timeout = '3s' AS $$ BEGIN
    PERFORM me(p_host), check_count(cardinality(p_keys), 256);
    RETURN QUERY UPDATE answer a SET until = clock_timestamp() + (SELECT ttl FROM meta) FROM (SELECT o.key, o.stamp FROM answer o
            WHERE o.key = ANY (p_keys) AND o.fence = ANY (p_fences) AND o.host = p_host AND o.seq IS NULL
            AND o.taken > clock_timestamp() - interval '15 min' ORDER BY slot(o.key, o.stamp), o.key FOR UPDATE) l
        WHERE a.key = l.key AND a.stamp = l.stamp RETURNING a.fence; END $$;
CREATE FUNCTION fleet1.release(p_host int, p_fences bigint[], p_keys uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp SET lock_timeout = '3s' AS $$ BEGIN
    PERFORM me(p_host), check_count(cardinality(p_keys), 256);
    DELETE FROM answer a USING (SELECT o.key, o.stamp FROM answer o WHERE o.key = ANY (p_keys) AND o.fence = ANY (p_fences)
            AND o.host = p_host AND o.seq IS NULL ORDER BY slot(o.key, o.stamp), o.key FOR UPDATE) l
        WHERE a.key = l.key AND a.stamp = l.stamp; END $$;
-- Publishes rows of a stamp and a class. p_known: the number of the row that the search saw as the key's answer, else 0.
-- verdict: a the row answers now, e another row answers, t the row was there already and answered (num: its number), x refused.
CREATE FUNCTION fleet1.publish(p_host int, p_stamp int, p_class int, p_ids uuid[], p_keys uuid[], p_fences bigint[], p_known bigint[],
    p_rows jsonb[]) RETURNS TABLE (verdict "char", k uuid, num bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp SET lock_timeout = '3s' AS $$
DECLARE i int;  n int := 0;  j jsonb;  cap int := (SELECT row_bytes FROM meta);  stamp_name text := (SELECT s.stamp FROM stamp s WHERE s.id = p_stamp);
    class_name text := (SELECT c.class FROM class c WHERE c.id = p_class); BEGIN
    PERFORM charge(p_host, 0, 0), check_count(cardinality(p_keys), 256);
    PERFORM set_config('synchronous_commit', 'on', true);  -- an acknowledged row is durable, whatever the server's default
    FOR i IN SELECT o FROM unnest(p_keys) WITH ORDINALITY u (x, o) ORDER BY slot(x, p_stamp), x LOOP
        PERFORM pg_advisory_xact_lock(slot(p_keys[i], p_stamp));
    END LOOP;
    FOR i IN SELECT o FROM unnest(p_keys) WITH ORDINALITY u (x, o) ORDER BY slot(x, p_stamp), x LOOP
        k := p_keys[i];  j := p_rows[i];  num := NULL;
        SELECT b.seq, CASE WHEN b.answered AND NOT b.withdrawn THEN 't' ELSE 'e' END INTO num, verdict FROM best b WHERE b.id = p_ids[i];
        IF FOUND THEN
            NULL;
        ELSIF (octet_length(j::text) <= cap AND jsonb_typeof(j) = 'object' AND j->>'key' = replace(k::text, '-', '')
                AND j->>'stamp' = stamp_name AND j->>'class' = class_name AND j->>'source' = 'tuned') IS NOT TRUE THEN
            verdict := 'x';
        ELSE
            num := next_seq();
            n := n + 1;
            INSERT INTO best (seq, id, key, stamp, class, source, host, fence, "row") VALUES (num, p_ids[i], k, p_stamp, p_class, 'tuned',
                p_host, coalesce(p_fences[i], 0), j);
            INSERT INTO answer AS a (key, stamp, seq, host, fence, until) VALUES (k, p_stamp, num, p_host, coalesce(p_fences[i], 0), '-infinity')
                ON CONFLICT (key, stamp) DO UPDATE SET seq = excluded.seq, host = excluded.host, fence = excluded.fence, until = '-infinity'
                WHERE a.seq IS NULL OR (a.seq = p_known[i] AND (SELECT b.source FROM best b WHERE b.seq = a.seq) <> 'manual');
            verdict := CASE WHEN FOUND THEN 'a' ELSE 'e' END;
            UPDATE best b SET answered = true WHERE b.seq = num AND verdict = 'a';
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM charge(p_host, n, 0); END $$;
-- Reads rows of the classes above a number, in their order, at most p_limit. answers: the row was its
-- key's answer when it got its number, and was not withdrawn. A row of source withdrawn has the withdrawn row's number in `withdraws`. The last row of the result has no key: num is the
-- number up to which the host has read.
CREATE FUNCTION fleet1.feed(p_host int, p_after bigint, p_classes int[], p_limit int)
RETURNS TABLE (num bigint, k uuid, source text, answers bool, withdraws bigint, host int, name text, r jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = fleet, pg_temp AS $$
DECLARE n int := 0;  most int := greatest(1, least(p_limit, 256));  head bigint := (SELECT coalesce(max(b.seq), 0) FROM best b); BEGIN
    PERFORM me(p_host);
    FOR num, k, source, answers, withdraws, host, name, r IN SELECT b.seq, b.key, b.source, b.answered AND NOT b.withdrawn, b.withdraws, b.host, h.name, b."row"
            FROM best b JOIN host h ON h.id = b.host WHERE b.seq > p_after AND b.class = ANY (p_classes) ORDER BY b.seq LIMIT most LOOP
        n := n + 1;
        RETURN NEXT;
    END LOOP;
    num := CASE WHEN n = most THEN num ELSE greatest(head, p_after) END;
    k := NULL;  source := NULL;  answers := NULL;  withdraws := NULL;  host := NULL;  name := NULL;  r := NULL;
    RETURN NEXT; END $$;
-- Says that a row was wrong or slow here. A row of which two hosts complain is withdrawn; hosts of a role other than the row's
-- count as one.
CREATE FUNCTION fleet1.complain(p_host int, p_seq bigint, p_reason text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp SET lock_timeout = '3s' AS $$ BEGIN
    PERFORM charge(p_host, 1, 0);
    INSERT INTO complaint (seq, host, reason) SELECT b.seq, p_host, left(p_reason, 320) FROM best b WHERE b.seq = p_seq AND b.host <> p_host
        AND b.source <> 'withdrawn' ON CONFLICT DO NOTHING;
    IF FOUND AND (SELECT count(DISTINCT voice(h, o.role)) FROM complaint c JOIN host h ON h.id = c.host JOIN best b ON b.seq = c.seq
            JOIN host o ON o.id = b.host WHERE c.seq = p_seq) >= 2 THEN
        PERFORM withdraw_row(p_seq, 'two hosts complained: ' || p_reason);
    END IF; END $$;
-- Puts variants that crashed or hung a runner into the fleet's quarantine, or takes the host's own word back.
CREATE FUNCTION fleet1.bar(p_host int, p_class int, p_driver text, p_variant uuid, p_row jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp SET lock_timeout = '3s' AS $$ BEGIN
    PERFORM charge(p_host, 1, 0);
    IF (octet_length(p_row::text) <= (SELECT row_bytes FROM meta) AND jsonb_typeof(p_row) = 'object') IS NOT TRUE THEN
        RAISE 'fleet: a row of quarantine must be a JSON object of limited length' USING ERRCODE = '54000';
    END IF;
    INSERT INTO quarantine (variant, class, driver, host, "row") VALUES (p_variant, p_class, p_driver, p_host, p_row)
        ON CONFLICT (variant, class, driver, host) DO UPDATE SET at = now(), "row" = excluded."row"; END $$;
CREATE FUNCTION fleet1.unbar(p_host int, p_variant uuid) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp SET lock_timeout = '3s' AS $$ DECLARE n int; BEGIN
    PERFORM me(p_host);
    DELETE FROM quarantine q WHERE q.variant = p_variant AND q.host = p_host;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n; END $$;
-- Variants that other hosts put into quarantine, the newest 256. `hosts` counts the hosts; those of another role count as one,
-- an admin as two.
CREATE FUNCTION fleet1.barred(p_host int, p_classes int[])
RETURNS TABLE (variant uuid, driver text, hosts int, name text, r jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = fleet, pg_temp AS $$ BEGIN
    PERFORM me(p_host);
    RETURN QUERY SELECT q.variant, q.driver, (count(DISTINCT voice(h, session_user)) + CASE WHEN bool_or(q.host = 0) THEN 2 ELSE 0 END)::int, min(coalesce(h.name, 'an admin')),
        (array_agg(q."row" ORDER BY q.at DESC))[1]
        FROM quarantine q LEFT JOIN host h ON h.id = q.host WHERE q.class = ANY (p_classes) AND q.host <> p_host AND h.distrusted IS NULL
        GROUP BY q.variant, q.class, q.driver ORDER BY max(q.at) DESC LIMIT 256; END $$;

---- functions of admins ---------------------------------------------------------------------------------------------

CREATE FUNCTION fleet1.withdraw(p_seq bigint, p_reason text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp AS $$ BEGIN
    PERFORM FROM best WHERE seq = p_seq AND source <> 'withdrawn';
    IF NOT FOUND THEN
        RAISE 'fleet: there is no row %', p_seq USING ERRCODE = '22023';
    END IF;
    PERFORM withdraw_row(p_seq, p_reason); END $$;
-- Makes an old row the key's answer, until this pin is withdrawn. Returns the pin's number.
CREATE FUNCTION fleet1.pin(p_seq bigint) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp AS $$
DECLARE s bigint; BEGIN
    s := next_seq();
    INSERT INTO best (seq, id, key, stamp, class, source, host, answered, "row")
        SELECT s, gen_random_uuid(), b.key, b.stamp, b.class, 'manual', b.host, true, b."row"
        FROM best b WHERE b.seq = p_seq AND b.source <> 'withdrawn';
    IF NOT FOUND THEN
        RAISE 'fleet: there is no row %', p_seq USING ERRCODE = '22023';
    END IF;
    UPDATE answer a SET seq = s, host = b.host, fence = 0, until = '-infinity' FROM best b WHERE b.seq = s AND a.key = b.key AND a.stamp = b.stamp;
    RETURN s; END $$;
-- Withdraws all rows of the hosts with this name, and accepts no call of them until fleet1.trust. Returns the number of rows.
CREATE FUNCTION fleet1.distrust(p_name text, p_reason text) RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp AS $$
DECLARE x record;  n int := 0; BEGIN
    UPDATE host SET distrusted = left(coalesce(nullif(p_reason, ''), 'by an admin'), 160) WHERE name = p_name;
    IF NOT FOUND THEN
        RAISE 'fleet: there is no host "%"', p_name USING ERRCODE = '22023';
    END IF;
    DELETE FROM quarantine q USING host h WHERE q.host = h.id AND h.name = p_name;
    PERFORM pg_advisory_xact_lock(726510);
    FOR x IN SELECT b.seq FROM best b JOIN host h ON h.id = b.host WHERE h.name = p_name AND NOT b.withdrawn AND b.source <> 'withdrawn'
            ORDER BY slot(b.key, b.stamp), b.key, b.seq LOOP
        PERFORM withdraw_row(x.seq, 'host ' || p_name || ' is distrusted');
        n := n + 1;
    END LOOP;
    RETURN n; END $$;
CREATE FUNCTION fleet1.trust(p_name text) RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp AS $$
DECLARE n int; BEGIN
    UPDATE host SET distrusted = NULL WHERE name = p_name AND distrusted IS NOT NULL;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n; END $$;
-- Deletes at most p_limit rows: rows of stamps that no host used for 180 days, and rows older than 90 days that answer nothing.
-- Rows of source withdrawn, pins and the newest row stay. Returns the number of rows; call again until it is 0.
CREATE FUNCTION fleet1.prune(p_limit int DEFAULT 5000) RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = fleet, pg_temp AS $$
DECLARE gone bigint[];  n int; BEGIN
    PERFORM pg_advisory_xact_lock(726510);
    SELECT array_agg(x.seq) INTO gone FROM (SELECT b.seq FROM best b JOIN stamp s ON s.id = b.stamp WHERE b.seq < (SELECT max(seq) FROM best)
        AND (s.seen < now() - interval '180 days' OR (b.at < now() - interval '90 days' AND b.source = 'tuned'
            AND NOT EXISTS (SELECT FROM answer a WHERE a.seq = b.seq))) ORDER BY b.seq LIMIT least(p_limit, 20000)) x;
    DELETE FROM answer a USING (SELECT o.key, o.stamp FROM answer o WHERE o.seq = ANY (gone) ORDER BY slot(o.key, o.stamp), o.key FOR UPDATE) l
        WHERE a.key = l.key AND a.stamp = l.stamp;
    DELETE FROM best WHERE seq = ANY (gone);
    GET DIAGNOSTICS n = ROW_COUNT;
    DELETE FROM answer a USING (SELECT o.key, o.stamp FROM answer o WHERE o.seq IS NULL AND o.until < now() - interval '1 day'
        FOR UPDATE SKIP LOCKED) l WHERE a.key = l.key AND a.stamp = l.stamp;
    DELETE FROM quarantine WHERE at < now() - interval '180 days' AND host <> 0;
    RETURN n; END $$;
-- After a restore from a file-system snapshot: hosts forget the fleet's numbers and publish their rows again.
CREATE FUNCTION fleet1.renew_epoch() RETURNS uuid LANGUAGE sql SECURITY DEFINER SET search_path = fleet, pg_temp AS $$
    UPDATE meta SET epoch = gen_random_uuid() RETURNING epoch $$;
CREATE FUNCTION fleet1.hosts() RETURNS TABLE (name text, role name, build text, seen timestamptz, rows bigint, answers bigint, leases bigint,
    complaints bigint, distrusted text) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = fleet, pg_temp AS $$
    SELECT h.name, h.role, h.build, h.seen, (SELECT count(*) FROM best b WHERE b.host = h.id AND b.source <> 'withdrawn'),
        (SELECT count(*) FROM best b JOIN answer a ON a.seq = b.seq WHERE b.host = h.id),
        (SELECT count(*) FROM answer a WHERE a.host = h.id AND a.seq IS NULL AND NOT over(a.until)),
        (SELECT count(*) FROM complaint c JOIN best b ON b.seq = c.seq WHERE b.host = h.id), h.distrusted FROM host h ORDER BY h.name $$;

---- rights ----------------------------------------------------------------------------------------------------------

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fleet, fleet1 FROM PUBLIC;
REVOKE ALL ON SCHEMA fleet, fleet1 FROM PUBLIC;
GRANT USAGE ON SCHEMA fleet1 TO gemmd_host, gemmd_fleet_admin;
GRANT EXECUTE ON FUNCTION fleet1.hello, fleet1.intern, fleet1.want, fleet1.renew, fleet1.release, fleet1.publish, fleet1.feed,
    fleet1.complain, fleet1.bar, fleet1.unbar, fleet1.barred TO gemmd_host;
GRANT EXECUTE ON FUNCTION fleet1.withdraw, fleet1.pin, fleet1.distrust, fleet1.trust, fleet1.prune, fleet1.renew_epoch, fleet1.hosts
    TO gemmd_fleet_admin;
COMMIT;
