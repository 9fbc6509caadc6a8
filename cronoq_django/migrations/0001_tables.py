"""Every table, with the indexes and constraints that Django has words for; the rest is in 0001_guards.sql."""

import cronoq_django.models.fields
import cronoq_django.models.ids
import cronoq_django.models.job
import datetime
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
from pathlib import Path

from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField(help_text='Snoozed and released attempts repeat their number.', verbose_name='number')),
                ('claim', models.BigIntegerField(verbose_name='claim')),
                ('started_at', models.DateTimeField(verbose_name='started')),
                ('ended_at', models.DateTimeField(verbose_name='ended')),
                ('outcome', cronoq_django.models.fields.CleanTextField(choices=[('succeeded', 'succeeded'), ('failed', 'failed'), ('timed_out', 'timed out'), ('lost', 'worker lost'), ('released', 'given back'), ('snoozed', 'snoozed'), ('cancelled', 'cancelled')], max_length=10, verbose_name='outcome')),
                ('exception_class', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', max_length=500, verbose_name='exception')),
                ('error', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', verbose_name='error')),
                ('traceback', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', verbose_name='traceback')),
            ],
            options={
                'verbose_name': 'attempt',
                'verbose_name_plural': 'attempts',
                'db_table': 'cronoq_attempt',
                'ordering': ('id',),
            },
        ),
        migrations.CreateModel(
            name='Coordinator',
            fields=[
                ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ('host', cronoq_django.models.fields.CleanTextField(max_length=200, verbose_name='host')),
                ('process_id', models.IntegerField(verbose_name='process')),
                ('version', cronoq_django.models.fields.CleanTextField(max_length=50, verbose_name='version')),
                ('status', cronoq_django.models.fields.CleanTextField(choices=[('leading', 'leading'), ('standby', 'standby'), ('ticking', 'ticking'), ('stopped', 'stopped'), ('lost', 'lost')], max_length=10, verbose_name='status')),
                ('declares', cronoq_django.models.fields.TextListField(default=list, help_text='The jobs in its code.', verbose_name='declares')),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='started')),
                ('last_heartbeat_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='last heartbeat')),
            ],
            options={
                'verbose_name': 'coordinator',
                'verbose_name_plural': 'coordinators',
                'db_table': 'cronoq_coordinator',
                'ordering': ('-started_at',),
            },
        ),
        migrations.CreateModel(
            name='Dependency',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('condition', cronoq_django.models.fields.CleanTextField(choices=[('success', 'succeeded'), ('failure', 'did not succeed'), ('any', 'ended')], db_default='success', default='success', max_length=10, verbose_name='condition')),
                ('settled_at', models.DateTimeField(blank=True, null=True, verbose_name='settled')),
            ],
            options={
                'verbose_name': 'dependency',
                'verbose_name_plural': 'dependencies',
                'db_table': 'cronoq_dependency',
            },
        ),
        migrations.CreateModel(
            name='Job',
            fields=[
                ('id', models.UUIDField(db_default=cronoq_django.models.job.RandomUUID(), default=cronoq_django.models.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', cronoq_django.models.fields.CleanTextField(help_text='Unique in the cluster; runs keep it.', max_length=200, unique=True, verbose_name='name')),
                ('description', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', max_length=2000, verbose_name='description')),
                ('script', cronoq_django.models.fields.CleanTextField(help_text='A registered task, for example shop.tasks.send_invoices.', max_length=500, verbose_name='script')),
                ('args', cronoq_django.models.fields.JsonField(blank=True, default=list, help_text='A JSON list.', verbose_name='positional arguments')),
                ('kwargs', cronoq_django.models.fields.JsonField(blank=True, default=dict, help_text='A JSON object.', verbose_name='named arguments')),
                ('source', cronoq_django.models.fields.CleanTextField(choices=[('code', 'code'), ('admin', 'admin')], db_default='admin', default='admin', editable=False, help_text='A job managed by code is kept equal to its declaration until it is changed here.', max_length=10, verbose_name='managed by')),
                ('enabled', models.BooleanField(db_default=True, default=True, help_text='A paused job has no slots. Resuming does not make up for them.', verbose_name='enabled')),
                ('kind', cronoq_django.models.fields.CleanTextField(choices=[('cron', 'cron expression'), ('every', 'fixed interval'), ('once', 'once'), ('manual', 'only by hand')], db_default='cron', default='cron', max_length=10, verbose_name='kind')),
                ('cron', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', help_text='minute hour day-of-month month day-of-week, or @daily and the like. If either day field starts with *, both must match; else one is enough.', max_length=200, verbose_name='cron')),
                ('timezone', cronoq_django.models.fields.CleanTextField(db_default='UTC', default='UTC', help_text='For example Europe/Warsaw.', max_length=100, verbose_name='time zone')),
                ('every', cronoq_django.models.fields.SpanField(blank=True, help_text='Real elapsed time, for example 00:05:00.', null=True, verbose_name='every')),
                ('anchor', cronoq_django.models.fields.MomentField(blank=True, help_text="The interval counts from here; when empty, from the job's creation.", null=True, verbose_name='anchor')),
                ('run_at', cronoq_django.models.fields.MomentField(blank=True, null=True, verbose_name='run at')),
                ('starts_at', cronoq_django.models.fields.MomentField(blank=True, help_text='No slot before this.', null=True, verbose_name='starts at')),
                ('ends_at', cronoq_django.models.fields.MomentField(blank=True, help_text='No slot after this.', null=True, verbose_name='ends at')),
                ('jitter', cronoq_django.models.fields.SpanField(blank=True, db_default=datetime.timedelta(0), default=datetime.timedelta, help_text="Each slot's run starts up to this much later: spreads the load, the same for the same slot.", verbose_name='jitter')),
                ('dst_gap', cronoq_django.models.fields.CleanTextField(blank=True, choices=[('shift', 'right after the gap'), ('skip', 'not on that day')], db_default='', default='', help_text="Local times that a clock change skips. Empty: by the expression, as Debian's cron does.", max_length=10, verbose_name='skipped local times')),
                ('dst_repeat', cronoq_django.models.fields.CleanTextField(blank=True, choices=[('first', 'the first time'), ('last', 'the second time'), ('both', 'both times')], db_default='', default='', help_text="Local times that a clock change repeats. Empty: by the expression, as Debian's cron does.", max_length=10, verbose_name='repeated local times')),
                ('pool', cronoq_django.models.fields.CleanTextField(db_default='default', default='default', max_length=100, verbose_name='pool')),
                ('priority', models.SmallIntegerField(db_default=0, default=0, help_text='−100 to 100; higher first.', validators=[django.core.validators.MinValueValidator(-100), django.core.validators.MaxValueValidator(100)], verbose_name='priority')),
                ('timeout', cronoq_django.models.fields.SpanField(blank=True, help_text='An attempt that takes longer is ended.', null=True, validators=[django.core.validators.MinValueValidator(datetime.timedelta(microseconds=1000))], verbose_name='timeout')),
                ('max_attempts', models.PositiveIntegerField(db_default=3, default=3, help_text='All attempts counted, also those lost with their worker.', validators=[django.core.validators.MinValueValidator(1)], verbose_name='attempts')),
                ('backoff', cronoq_django.models.fields.JsonField(blank=True, help_text='Delays between attempts, for example {"first": 1, "factor": 2, "cap": 3600} (seconds).', null=True, verbose_name='backoff')),
                ('concurrency', models.PositiveIntegerField(db_default=1, default=1, help_text='Open runs of this job at a time.', validators=[django.core.validators.MinValueValidator(1)], verbose_name='concurrency')),
                ('overlap', cronoq_django.models.fields.CleanTextField(choices=[('skip', 'skip the slot'), ('queue', 'wait for the earlier run'), ('allow', 'run beside it'), ('replace', 'cancel the earlier run')], db_default='skip', default='skip', max_length=10, verbose_name='overlap')),
                ('misfire', cronoq_django.models.fields.CleanTextField(choices=[('skip', 'skip them'), ('latest', 'run the newest once'), ('all', 'run them all, up to the limit')], db_default='latest', default='latest', max_length=10, verbose_name='missed slots')),
                ('misfire_window', cronoq_django.models.fields.SpanField(blank=True, help_text='Slots missed by more than this are not made up for.', null=True, verbose_name='missed within')),
                ('misfire_limit', models.PositiveIntegerField(db_default=10, default=10, help_text='Missed slots made up for at once.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)], verbose_name='at most')),
                ('pause_on_failure', models.BooleanField(db_default=False, default=False, verbose_name='pause on failure')),
                ('declared_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('revision', models.PositiveIntegerField(db_default=0, default=0, editable=False, verbose_name='revision')),
                ('schedule_revision', models.PositiveIntegerField(db_default=0, default=0, editable=False)),
                ('schedule_changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name='created')),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name='updated')),
            ],
            options={
                'verbose_name': 'job',
                'verbose_name_plural': 'jobs',
                'db_table': 'cronoq_job',
                'ordering': ('name',),
                'permissions': (('run_job', 'Can run a job now'), ('pause_job', 'Can pause and resume a job')),
            },
        ),
        migrations.CreateModel(
            name='Unsettled',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run', models.UUIDField()),
            ],
            options={
                'db_table': 'cronoq_unsettled',
            },
        ),
        migrations.CreateModel(
            name='JobChange',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('job', models.UUIDField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'job change',
                'verbose_name_plural': 'job changes',
                'db_table': 'cronoq_job_change',
            },
        ),
        migrations.CreateModel(
            name='JobRevision',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField(verbose_name='revision')),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='changed')),
                ('changed_by', cronoq_django.models.fields.CleanTextField(max_length=200, verbose_name='by')),
                ('snapshot', cronoq_django.models.fields.JsonField(verbose_name='snapshot')),
            ],
            options={
                'verbose_name': 'job revision',
                'verbose_name_plural': 'job revisions',
                'db_table': 'cronoq_job_revision',
                'ordering': ('-number',),
            },
        ),
        migrations.CreateModel(
            name='Leader',
            fields=[
                ('id', models.SmallIntegerField(db_default=1, default=1, editable=False, primary_key=True, serialize=False)),
                ('epoch', models.BigIntegerField(verbose_name='epoch')),
                ('term', models.UUIDField(help_text='A random mark: an epoch that a lossy failover rewound is not mistaken for this one.', verbose_name='term')),
                ('coordinator', models.UUIDField(verbose_name='coordinator')),
                ('host', cronoq_django.models.fields.CleanTextField(max_length=200, verbose_name='host')),
                ('backend_pid', models.IntegerField(verbose_name='backend')),
                ('backend_start', models.DateTimeField(verbose_name='backend started')),
                ('acquired_at', models.DateTimeField(verbose_name='leading since')),
                ('renewed_at', models.DateTimeField(verbose_name='last heartbeat')),
                ('ttl', models.DurationField(verbose_name='TTL')),
            ],
            options={
                'verbose_name': 'leader',
                'verbose_name_plural': 'leader',
                'db_table': 'cronoq_leader',
            },
        ),
        migrations.CreateModel(
            name='LeaderTerm',
            fields=[
                ('term', models.UUIDField(editable=False, primary_key=True, serialize=False, verbose_name='term')),
                ('epoch', models.BigIntegerField(verbose_name='epoch')),
                ('coordinator', models.UUIDField(verbose_name='coordinator')),
                ('host', cronoq_django.models.fields.CleanTextField(max_length=200, verbose_name='host')),
                ('from_at', models.DateTimeField(verbose_name='from')),
                ('until_at', models.DateTimeField(blank=True, null=True, verbose_name='until')),
                ('ended', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', max_length=500, verbose_name='why it ended')),
                ('recovered', cronoq_django.models.fields.JsonField(default=dict, verbose_name='recovered')),
            ],
            options={
                'verbose_name': 'term',
                'verbose_name_plural': 'terms',
                'db_table': 'cronoq_leader_term',
                'ordering': ('-from_at',),
            },
        ),
        migrations.CreateModel(
            name='PartitionAssignment',
            fields=[
                ('partition', models.PositiveSmallIntegerField(primary_key=True, serialize=False, verbose_name='partition')),
                ('coordinator', models.UUIDField(blank=True, null=True, verbose_name='coordinator')),
                ('epoch', models.BigIntegerField(db_default=0, default=0, verbose_name='epoch')),
                ('lease_expires_at', models.DateTimeField(blank=True, null=True, verbose_name='lease expires')),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='updated')),
            ],
            options={
                'verbose_name': 'partition assignment',
                'verbose_name_plural': 'partition assignments',
                'db_table': 'cronoq_partition_assignment',
                'ordering': ('partition',),
            },
        ),
        migrations.CreateModel(
            name='Pool',
            fields=[
                ('name', cronoq_django.models.fields.CleanTextField(max_length=100, primary_key=True, serialize=False, verbose_name='name')),
                ('paused', models.BooleanField(db_default=False, default=False, help_text='Workers begin nothing new from a paused pool.', verbose_name='paused')),
                ('description', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', max_length=2000, verbose_name='description')),
            ],
            options={
                'verbose_name': 'pool',
                'verbose_name_plural': 'pools',
                'db_table': 'cronoq_pool',
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Run',
            fields=[
                ('id', models.UUIDField(default=cronoq_django.models.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('trigger', cronoq_django.models.fields.CleanTextField(choices=[('slot', 'schedule'), ('manual', 'by hand'), ('enqueue', 'enqueued')], max_length=10, verbose_name='made by')),
                ('job_name', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', max_length=200, verbose_name='job name')),
                ('job_revision', models.PositiveIntegerField(blank=True, help_text='The definition it was made from.', null=True, verbose_name='job revision')),
                ('scheduled_for', models.DateTimeField(blank=True, help_text='The instant the job was due, not the one it was noticed.', null=True, verbose_name='slot')),
                ('actor', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', help_text='Who or what asked for it.', max_length=200, verbose_name='actor')),
                ('script', cronoq_django.models.fields.CleanTextField(max_length=500, verbose_name='script')),
                ('args', cronoq_django.models.fields.JsonField(default=list, verbose_name='positional arguments')),
                ('kwargs', cronoq_django.models.fields.JsonField(default=dict, verbose_name='named arguments')),
                ('pool', cronoq_django.models.fields.CleanTextField(db_default='default', default='default', max_length=100, verbose_name='pool')),
                ('priority', models.SmallIntegerField(db_default=0, default=0, verbose_name='priority')),
                ('timeout', models.DurationField(blank=True, null=True, verbose_name='timeout')),
                ('max_attempts', models.PositiveIntegerField(db_default=3, default=3, verbose_name='attempts allowed')),
                ('backoff', cronoq_django.models.fields.JsonField(blank=True, null=True, verbose_name='backoff')),
                ('tags', cronoq_django.models.fields.TextListField(blank=True, null=True, verbose_name='tags')),
                ('key', cronoq_django.models.fields.CleanTextField(blank=True, null=True, verbose_name='key')),
                ('key_hash', models.BinaryField(null=True)),
                ('key_held', models.BooleanField(db_default=False, default=False)),
                ('key_for', models.DurationField(blank=True, help_text='How long after its end no other run gets its key.', null=True, verbose_name='key kept for')),
                ('key_until', models.DateTimeField(blank=True, null=True)),
                ('status', cronoq_django.models.fields.CleanTextField(choices=[('blocked', 'blocked'), ('scheduled', 'scheduled'), ('queued', 'queued'), ('running', 'running'), ('succeeded', 'succeeded'), ('failed', 'failed'), ('cancelled', 'cancelled'), ('skipped', 'skipped')], max_length=10, verbose_name='status')),
                ('reason', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', max_length=20, verbose_name='reason')),
                ('due_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='due')),
                ('expires_at', models.DateTimeField(blank=True, help_text='Fails if not begun by then.', null=True, verbose_name='expires')),
                ('cancel_requested_at', models.DateTimeField(blank=True, null=True, verbose_name='cancel requested')),
                ('attempts', models.PositiveIntegerField(db_default=0, default=0, help_text='Ended executions that count.', verbose_name='attempts made')),
                ('claim', models.BigIntegerField(blank=True, null=True, verbose_name='claim')),
                ('lease_expires_at', models.DateTimeField(blank=True, null=True, verbose_name='lease expires')),
                ('solo', models.BooleanField(db_default=False, default=False, help_text='Was lost before it was seen to begin: claimed alone next time.')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='created')),
                ('started_at', models.DateTimeField(blank=True, null=True, verbose_name='started')),
                ('finished_at', models.DateTimeField(blank=True, null=True, verbose_name='finished')),
                ('result', cronoq_django.models.fields.JsonField(blank=True, null=True, verbose_name='result')),
                ('error', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', verbose_name='error')),
                ('epoch', models.BigIntegerField(blank=True, help_text="The leader's term that made it.", null=True, verbose_name='epoch')),
            ],
            options={
                'verbose_name': 'run',
                'verbose_name_plural': 'runs',
                'db_table': 'cronoq_run',
                'permissions': (('retry_run', 'Can retry a run'), ('cancel_run', 'Can cancel a run')),
            },
        ),
        migrations.CreateModel(
            name='Script',
            fields=[
                ('name', cronoq_django.models.fields.CleanTextField(max_length=500, primary_key=True, serialize=False, verbose_name='name')),
                ('signature', cronoq_django.models.fields.CleanTextField(max_length=4000, verbose_name='signature')),
                ('signature_hash', cronoq_django.models.fields.CleanTextField(max_length=64, verbose_name='signature hash')),
                ('doc', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', verbose_name='documentation')),
                ('first_seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='first seen')),
                ('last_seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='last seen')),
            ],
            options={
                'verbose_name': 'script',
                'verbose_name_plural': 'scripts',
                'db_table': 'cronoq_script',
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Stage',
            fields=[
                ('name', cronoq_django.models.fields.CleanTextField(max_length=50, primary_key=True, serialize=False, verbose_name='stage')),
                ('epoch', models.BigIntegerField(verbose_name='epoch')),
                ('last_run_at', models.DateTimeField(verbose_name='last run')),
                ('duration', models.DurationField(verbose_name='duration')),
                ('rows', models.BigIntegerField(help_text='Handled in that run.', verbose_name='rows')),
                ('error', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', verbose_name='error')),
                ('error_at', models.DateTimeField(blank=True, null=True, verbose_name='failed')),
            ],
            options={
                'verbose_name': 'stage',
                'verbose_name_plural': 'stages',
                'db_table': 'cronoq_stage',
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Stat',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('minute', models.DateTimeField(verbose_name='minute')),
                ('pool', cronoq_django.models.fields.CleanTextField(max_length=100, verbose_name='pool')),
                ('script', cronoq_django.models.fields.CleanTextField(max_length=500, verbose_name='script')),
                ('succeeded', models.BigIntegerField(db_default=0, default=0, verbose_name='succeeded')),
                ('failed', models.BigIntegerField(db_default=0, default=0, verbose_name='failed')),
                ('cancelled', models.BigIntegerField(db_default=0, default=0, verbose_name='cancelled')),
                ('skipped', models.BigIntegerField(db_default=0, default=0, verbose_name='skipped')),
                ('run_time', models.DurationField(verbose_name='run time')),
                ('wait', models.DurationField(verbose_name='wait')),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'statistic',
                'verbose_name_plural': 'statistics',
                'db_table': 'cronoq_stat',
            },
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', models.UUIDField(default=cronoq_django.models.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', cronoq_django.models.fields.CleanTextField(max_length=200, verbose_name='name')),
                ('host', cronoq_django.models.fields.CleanTextField(max_length=200, verbose_name='host')),
                ('process_id', models.IntegerField(verbose_name='process')),
                ('version', cronoq_django.models.fields.CleanTextField(max_length=50, verbose_name='version')),
                ('pools', cronoq_django.models.fields.JsonField(default=dict, help_text='Concurrency by pool.', verbose_name='pools')),
                ('concurrency', models.PositiveIntegerField(verbose_name='concurrency')),
                ('scripts', cronoq_django.models.fields.TextListField(default=list, help_text='The scripts it knows.', verbose_name='scripts')),
                ('status', cronoq_django.models.fields.CleanTextField(choices=[('online', 'online'), ('draining', 'draining'), ('stopped', 'stopped'), ('lost', 'lost')], db_default='online', default='online', max_length=10, verbose_name='status')),
                ('running', models.PositiveIntegerField(db_default=0, default=0, verbose_name='running')),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='started')),
                ('last_heartbeat_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='last heartbeat')),
                ('drain_requested_at', models.DateTimeField(blank=True, null=True, verbose_name='drain requested')),
            ],
            options={
                'verbose_name': 'worker',
                'verbose_name_plural': 'workers',
                'db_table': 'cronoq_worker',
                'ordering': ('-started_at',),
                'permissions': (('drain_worker', 'Can drain a worker'),),
            },
        ),
        migrations.CreateModel(
            name='JobState',
            fields=[
                ('job', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, related_name='state', serialize=False, to='cronoq.job', verbose_name='job')),
                ('partition', models.PositiveSmallIntegerField(help_text='0 to 63: decides which coordinator ticks the job.')),
                ('planned_revision', models.PositiveIntegerField(help_text='The schedule revision that the next slot was computed for.')),
                ('next_run_at', models.DateTimeField(blank=True, null=True, verbose_name='next slot')),
                ('last_slot', models.DateTimeField(blank=True, null=True, verbose_name='last slot')),
                ('completed_at', models.DateTimeField(blank=True, help_text='Since when no slot is left.', null=True, verbose_name='completed')),
                ('missed_count', models.BigIntegerField(db_default=0, default=0, verbose_name='missed')),
                ('skipped_count', models.BigIntegerField(db_default=0, default=0, verbose_name='skipped')),
                ('explanation', cronoq_django.models.fields.CleanTextField(db_default='', default='', help_text='What the scheduler last decided, and why.', max_length=2000, verbose_name='explanation')),
                ('error', cronoq_django.models.fields.CleanTextField(db_default='', default='', help_text='Why the job is not fired until it is edited.', max_length=2000, verbose_name='error')),
                ('epoch', models.BigIntegerField()),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'job state',
                'verbose_name_plural': 'job states',
                'db_table': 'cronoq_job_state',
            },
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['cron', 'every', 'once', 'manual'])), name='cronoq_job_kind'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'cron'), models.Q(('cron', ''), _negated=True)), models.Q(('every__gte', datetime.timedelta(seconds=1)), ('every__isnull', False), ('kind', 'every')), models.Q(('kind', 'once'), ('run_at__isnull', False)), ('kind', 'manual'), _connector='OR'), name='cronoq_job_schedule', violation_error_message='Cron needs its expression, an interval its length (a second or more), a one-off its time.'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('dst_gap__in', ['', 'shift', 'skip']), ('dst_repeat__in', ['', 'first', 'last', 'both']), ('misfire__in', ['skip', 'latest', 'all']), ('overlap__in', ['skip', 'queue', 'allow', 'replace']), ('source__in', ['code', 'admin'])), name='cronoq_job_policies'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('concurrency__gte', 1), ('max_attempts__gte', 1), ('misfire_limit__range', (1, 1000)), ('priority__range', (-100, 100))), name='cronoq_job_numbers'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('anchor__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('created_at__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('ends_at__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('every__range', (datetime.timedelta(0), datetime.timedelta(days=36525))), ('jitter__range', (datetime.timedelta(0), datetime.timedelta(days=36525))), ('misfire_window__range', (datetime.timedelta(0), datetime.timedelta(days=36525))), ('run_at__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('starts_at__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('timeout__range', (datetime.timedelta(0), datetime.timedelta(days=36525)))), name='cronoq_job_times'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('starts_at__isnull', True), ('ends_at__isnull', True), ('ends_at__gte', models.F('starts_at')), _connector='OR'), name='cronoq_job_period', violation_error_message='The end lies before the start.'),
        ),
        migrations.AddField(
            model_name='jobrevision',
            name='job',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='revisions', to='cronoq.job', verbose_name='job'),
        ),
        migrations.AddConstraint(
            model_name='leader',
            constraint=models.CheckConstraint(condition=models.Q(('id', 1)), name='cronoq_leader_one'),
        ),
        migrations.AddIndex(
            model_name='leaderterm',
            index=models.Index(fields=['-from_at'], name='cronoq_leader_term_from'),
        ),
        migrations.AddConstraint(
            model_name='partitionassignment',
            constraint=models.CheckConstraint(condition=models.Q(('partition__lt', 64)), name='cronoq_partition_range'),
        ),
        migrations.CreateModel(
            name='RunDetail',
            fields=[
                ('run', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, related_name='detail', serialize=False, to='cronoq.run', verbose_name='run')),
                ('progress_done', models.BigIntegerField(blank=True, null=True, verbose_name='done')),
                ('progress_total', models.BigIntegerField(blank=True, null=True, verbose_name='of')),
                ('message', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', max_length=2000, verbose_name='message')),
                ('log', cronoq_django.models.fields.CleanTextField(blank=True, db_default='', default='', verbose_name='log')),
            ],
            options={
                'verbose_name': 'run detail',
                'verbose_name_plural': 'run details',
                'db_table': 'cronoq_run_detail',
            },
        ),
        migrations.AddField(
            model_name='run',
            name='job',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='cronoq.job', verbose_name='job'),
        ),
        migrations.AddField(
            model_name='run',
            name='parent',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='cronoq.run', verbose_name='parent'),
        ),
        migrations.AddField(
            model_name='run',
            name='retry_of',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='cronoq.run', verbose_name='retry of'),
        ),
        migrations.AddField(
            model_name='run',
            name='root',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='cronoq.run', verbose_name='root'),
        ),
        migrations.AddField(
            model_name='dependency',
            name='prerequisite',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='dependants', to='cronoq.run', verbose_name='prerequisite'),
        ),
        migrations.AddField(
            model_name='dependency',
            name='run',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='prerequisites', to='cronoq.run', verbose_name='run'),
        ),
        migrations.AddField(
            model_name='attempt',
            name='run',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='attempt_set', to='cronoq.run', verbose_name='run'),
        ),
        migrations.AddConstraint(
            model_name='stat',
            constraint=models.UniqueConstraint(fields=('minute', 'pool', 'script'), name='cronoq_stat_bucket'),
        ),
        migrations.AddField(
            model_name='run',
            name='worker',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='cronoq.worker', verbose_name='worker'),
        ),
        migrations.AddField(
            model_name='attempt',
            name='worker',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='cronoq.worker', verbose_name='worker'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('source', 'code')), fields=['id'], name='cronoq_job_of_code'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('enabled', True), ('pause_on_failure', True)), fields=['id'], name='cronoq_job_pausing'),
        ),
        migrations.AddIndex(
            model_name='jobstate',
            index=models.Index(condition=models.Q(('error', ''), _negated=True), fields=['job'], name='cronoq_job_state_error'),
        ),
        migrations.AddConstraint(
            model_name='jobstate',
            constraint=models.CheckConstraint(condition=models.Q(('last_slot__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('next_run_at__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9999, 12, 31, 0, 0, tzinfo=datetime.timezone.utc)))), name='cronoq_job_state_times'),
        ),
        migrations.AddIndex(
            model_name='jobstate',
            index=models.Index(condition=models.Q(('next_run_at__isnull', False)), fields=['next_run_at'], name='cronoq_job_state_due'),
        ),
        migrations.AddConstraint(
            model_name='jobrevision',
            constraint=models.UniqueConstraint(fields=('job', 'number'), name='cronoq_job_revision_number'),
        ),
        migrations.AddIndex(
            model_name='dependency',
            index=models.Index(condition=models.Q(('settled_at__isnull', True)), fields=['prerequisite'], name='cronoq_dependency_open'),
        ),
        migrations.AddIndex(
            model_name='dependency',
            index=models.Index(condition=models.Q(('settled_at__isnull', True)), fields=['run'], name='cronoq_dependency_waits'),
        ),
        migrations.AddConstraint(
            model_name='dependency',
            constraint=models.UniqueConstraint(fields=('run', 'prerequisite'), name='cronoq_dependency_pair'),
        ),
        migrations.AddConstraint(
            model_name='dependency',
            constraint=models.CheckConstraint(condition=models.Q(('condition__in', ['success', 'failure', 'any'])), name='cronoq_dependency_condition'),
        ),
        migrations.AddConstraint(
            model_name='dependency',
            constraint=models.CheckConstraint(condition=models.Q(('run', models.F('prerequisite')), _negated=True), name='cronoq_dependency_other'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(models.F('pool'), models.OrderBy(models.F('priority'), descending=True), models.F('due_at'), models.F('id'), condition=models.Q(('status', 'queued')), name='cronoq_run_queued'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('status', 'scheduled')), fields=['due_at'], name='cronoq_run_scheduled'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('status', 'running')), fields=['worker'], name='cronoq_run_running'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['finished_at'], name='cronoq_run_finished'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('status', 'blocked')), fields=['job'], name='cronoq_run_blocked'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('job__isnull', False), ('status__in', ('blocked', 'scheduled', 'queued', 'running'))), fields=['job'], name='cronoq_run_job_open'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('expires_at__isnull', False), ('finished_at__isnull', True)), fields=['expires_at'], name='cronoq_run_expires'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('finished_at__isnull', False), ('key_held', True)), fields=['key_until'], name='cronoq_run_key_until'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('key_hash__isnull', False)), fields=['key_hash'], name='cronoq_run_key_had'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('parent__isnull', False)), fields=['parent'], name='cronoq_run_parent'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.UniqueConstraint(condition=models.Q(('trigger', 'slot')), fields=('job', 'scheduled_for'), name='cronoq_run_slot'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.UniqueConstraint(condition=models.Q(('key_held', True)), fields=('key_hash',), name='cronoq_run_key'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['blocked', 'scheduled', 'queued', 'running', 'succeeded', 'failed', 'cancelled', 'skipped'])), name='cronoq_run_status'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('reason', ''), ('status__in', ['blocked', 'scheduled', 'queued', 'running', 'succeeded'])), models.Q(('reason__in', ('error', 'timeout', 'lost', 'quarantined', 'expired', 'discarded', 'unstorable')), ('status', 'failed')), models.Q(('reason__in', ('requested', 'job_deleted', 'replaced')), ('status', 'cancelled')), models.Q(('reason__in', ('prerequisite', 'overlap', 'misfire')), ('status', 'skipped')), _connector='OR'), name='cronoq_run_reason'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('claim__isnull', False), ('lease_expires_at__isnull', False), ('status', 'running'), ('worker__isnull', False)), models.Q(models.Q(('status', 'running'), _negated=True), ('claim__isnull', True), ('lease_expires_at__isnull', True)), _connector='OR'), name='cronoq_run_owned'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', False), ('status__in', ('succeeded', 'failed', 'cancelled', 'skipped'))), models.Q(('finished_at__isnull', True), ('status__in', ('blocked', 'scheduled', 'queued', 'running'))), _connector='OR'), name='cronoq_run_ended'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(models.Q(('trigger', 'slot'), _negated=True), ('trigger__in', ['slot', 'manual', 'enqueue'])), models.Q(('job__isnull', False), ('scheduled_for__isnull', False), ('trigger', 'slot')), _connector='OR'), name='cronoq_run_made'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(('created_at__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('due_at__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('expires_at__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('scheduled_for__range', (datetime.datetime(1900, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), datetime.datetime(9998, 12, 31, 0, 0, tzinfo=datetime.timezone.utc))), ('timeout__range', (datetime.timedelta(0), datetime.timedelta(days=36525)))), name='cronoq_run_times'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(('key_held', False), models.Q(('key_hash__isnull', False), models.Q(('finished_at__isnull', True), ('key_until__isnull', False), _connector='OR')), _connector='OR'), name='cronoq_run_key_held'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(('attempts__range', (0, 1000000000)), ('max_attempts__gte', 1), ('priority__range', (-100, 100))), name='cronoq_run_numbers'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['run', 'id'], name='cronoq_attempt_run'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', ['succeeded', 'failed', 'timed_out', 'lost', 'released', 'snoozed', 'cancelled'])), name='cronoq_attempt_outcome'),
        ),
        migrations.RunSQL(
            Path(__file__).with_name('0001_guards.sql').read_text(encoding='utf-8'),
            # Tables take their triggers and indexes along; what stands alone goes here.
            reverse_sql='''
                DROP FUNCTION cronoq_job_count() CASCADE;
                DROP FUNCTION cronoq_job_record() CASCADE;
                DROP FUNCTION cronoq_run_ended() CASCADE;
                DROP FUNCTION cronoq_run_deleted() CASCADE;
                DROP FUNCTION cronoq_channel(text, text);
                DROP SEQUENCE cronoq_claim;
            ''',
        ),
    ]
