-- What the database itself guards, so that save(), update(), bulk_update(), raw SQL and psql are all safe.
-- Trigger functions find their tables by TG_TABLE_SCHEMA: a session's search_path may lead elsewhere.

-- Where to notify in one cluster. Channels are shared by a whole database and end at 63 bytes, hence the hash.
-- Purposes: 'leader' (a job changed, a run is to be settled, or the leader resigned), 'pool:<name>' (a run was queued), 'cancel' (of a running one).
CREATE FUNCTION cronoq_channel(cluster text, purpose text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'cronoq_' || left(encode(sha256(convert_to(cluster || ':' || purpose, 'UTF8')), 'hex'), 32)
$$;

-- The fencing tokens of runs. Only equality counts; a cached block lost with its session is no loss.
CREATE SEQUENCE cronoq_claim CACHE 20;


-- Job: the counters are the trigger's alone, so a stale save() can't set them back.
CREATE FUNCTION cronoq_job_count() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    -- A test may put its session's time in place of the clock's.
    now timestamptz := coalesce(nullif(current_setting('cronoq.now', true), '')::timestamptz, clock_timestamp());
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.revision := 1;
        NEW.schedule_revision := 1;
        NEW.schedule_changed_at := now;
        RETURN NEW;
    END IF;
    NEW.id := OLD.id;
    NEW.created_at := OLD.created_at;
    NEW.updated_at := OLD.updated_at;
    NEW.revision := OLD.revision;
    NEW.schedule_revision := OLD.schedule_revision;
    NEW.schedule_changed_at := OLD.schedule_changed_at;
    IF (NEW.enabled, NEW.kind, NEW.cron, NEW.timezone, NEW.every, NEW.anchor, NEW.run_at, NEW.starts_at, NEW.ends_at,
        NEW.jitter, NEW.dst_gap, NEW.dst_repeat)
       IS DISTINCT FROM
       (OLD.enabled, OLD.kind, OLD.cron, OLD.timezone, OLD.every, OLD.anchor, OLD.run_at, OLD.starts_at, OLD.ends_at,
        OLD.jitter, OLD.dst_gap, OLD.dst_repeat) THEN
        NEW.schedule_revision := OLD.schedule_revision + 1;
        NEW.schedule_changed_at := now;
    END IF;
    IF NEW.schedule_revision <> OLD.schedule_revision
       OR (NEW.name, NEW.description, NEW.script, NEW.args::text, NEW.kwargs::text, NEW.source, NEW.pool, NEW.priority,
           NEW.timeout, NEW.max_attempts, NEW.backoff::text, NEW.concurrency, NEW.overlap, NEW.misfire,
           NEW.misfire_window, NEW.misfire_limit, NEW.pause_on_failure)
          IS DISTINCT FROM
          (OLD.name, OLD.description, OLD.script, OLD.args::text, OLD.kwargs::text, OLD.source, OLD.pool, OLD.priority,
           OLD.timeout, OLD.max_attempts, OLD.backoff::text, OLD.concurrency, OLD.overlap, OLD.misfire,
           OLD.misfire_window, OLD.misfire_limit, OLD.pause_on_failure) THEN
        NEW.revision := OLD.revision + 1;
        NEW.updated_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER cronoq_job_count BEFORE INSERT OR UPDATE ON cronoq_job
    FOR EACH ROW EXECUTE FUNCTION cronoq_job_count();


-- Job: every change leaves a revision; a change of the schedule, or a deletion, also a row for `plan` and a wake-up.
CREATE FUNCTION cronoq_job_record() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    schema text := TG_TABLE_SCHEMA;
    changed uuid;
BEGIN
    IF TG_OP = 'DELETE' THEN
        EXECUTE format('DELETE FROM %I.cronoq_job_state WHERE job_id = $1', schema) USING OLD.id;
        EXECUTE format('DELETE FROM %I.cronoq_job_revision WHERE job_id = $1', schema) USING OLD.id;
        changed := OLD.id;
    ELSE
        IF TG_OP = 'INSERT' OR NEW.revision <> OLD.revision THEN
            EXECUTE format(
                'INSERT INTO %I.cronoq_job_revision (job_id, number, changed_at, changed_by, snapshot)
                 VALUES ($1, $2, clock_timestamp(), $3, $4)', schema)
                USING NEW.id, NEW.revision,
                      coalesce(nullif(current_setting('cronoq.actor', true), ''), 'database:' || session_user),
                      row_to_json(NEW);
        END IF;
        -- The script and its arguments do not move the next slot, but a job may have been set aside for them.
        IF TG_OP = 'INSERT' OR NEW.schedule_revision <> OLD.schedule_revision
           OR (NEW.script, NEW.args::text, NEW.kwargs::text) IS DISTINCT FROM (OLD.script, OLD.args::text, OLD.kwargs::text) THEN
            changed := NEW.id;
        END IF;
    END IF;
    IF changed IS NOT NULL THEN
        EXECUTE format('INSERT INTO %I.cronoq_job_change (job, at) VALUES ($1, clock_timestamp())', schema) USING changed;
        EXECUTE format('SELECT pg_notify(%I.cronoq_channel(%L, ''leader''), ''job'')', schema, schema);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER cronoq_job_record AFTER INSERT OR UPDATE OR DELETE ON cronoq_job
    FOR EACH ROW EXECUTE FUNCTION cronoq_job_record();


-- Run: a terminal state never changes.
CREATE FUNCTION cronoq_run_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run % has ended (%): it cannot become %', OLD.id, OLD.status, NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'cronoq_run_ended_once',
              HINT = 'Retry it: that makes a new run.';
END $$;

CREATE TRIGGER cronoq_run_ended AFTER UPDATE OF status, reason ON cronoq_run
    FOR EACH ROW WHEN (OLD.finished_at IS NOT NULL AND (NEW.status, NEW.reason, NEW.finished_at) IS DISTINCT FROM (OLD.status, OLD.reason, OLD.finished_at))
    EXECUTE FUNCTION cronoq_run_ended();

-- Run: what waits for a run that is deleted must not wait for ever. Prune leaves such runs alone; people may not. What
-- waits is not seen by a snapshot that is older: then all are looked at.
CREATE FUNCTION cronoq_run_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DELETE FROM %I.cronoq_dependency WHERE run_id IN (SELECT id FROM deleted)', TG_TABLE_SCHEMA);
    EXECUTE format(
        'INSERT INTO %1$I.cronoq_unsettled (run)
         SELECT id FROM deleted
         WHERE current_setting(''transaction_isolation'') <> ''read committed''
            OR EXISTS (SELECT FROM %1$I.cronoq_dependency WHERE prerequisite_id = deleted.id AND settled_at IS NULL)',
        TG_TABLE_SCHEMA);
    RETURN NULL;
END $$;

CREATE TRIGGER cronoq_run_deleted AFTER DELETE ON cronoq_run REFERENCING OLD TABLE AS deleted
    FOR EACH STATEMENT EXECUTE FUNCTION cronoq_run_deleted();

-- What `quarantine` looks for; json_typeof reads one token only.
CREATE INDEX cronoq_run_undecodable ON cronoq_run (id)
    WHERE status IN ('blocked', 'scheduled', 'queued') AND (json_typeof(args) <> 'array' OR json_typeof(kwargs) <> 'object');

CREATE INDEX cronoq_run_tags ON cronoq_run USING gin (tags) WHERE tags IS NOT NULL;


-- Room for updates within a page where rows change in place (leases, heartbeats, states), and vacuum before dead rows pile up.
ALTER TABLE cronoq_run SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0,
                            autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE cronoq_job_state SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE cronoq_job_change SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE cronoq_unsettled SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE cronoq_worker SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
ALTER TABLE cronoq_coordinator SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
ALTER TABLE cronoq_leader SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
ALTER TABLE cronoq_stage SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
