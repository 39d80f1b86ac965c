# One image for web, worker, beat and watcher; docker-compose.yml gives each its command.
FROM python:3.13-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app

COPY requirements.txt .
RUN pip install --requirement requirements.txt

COPY manage.py CHANGELOG.md ./
COPY console console
COPY gpupools gpupools
COPY templates templates
COPY static static
COPY locale locale

ENV GPUPOOLS_STATIC_ROOT=/app/staticfiles GPUPOOLS_DATA_DIR=/data GPUPOOLS_HOST=0.0.0.0 GPUPOOLS_LOG_FORMAT=json
RUN python manage.py collectstatic --no-input --verbosity 0 \
    && useradd --system --home-dir /data --create-home --uid 10001 console
USER console
EXPOSE 8000
CMD ["python", "-m", "uvicorn", "console.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--lifespan", "off", "--no-access-log"]
