# Minimal, because it was written without Docker and is not tested. docs/operations.md says what to check.
FROM python:3.11-slim

WORKDIR /app
COPY pyproject.toml constraints.txt ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt setuptools \
 && pip install --no-cache-dir --constraint constraints.txt --no-build-isolation . \
 && useradd --system --uid 10001 plaza \
 && install --directory --owner plaza --group plaza --mode 700 /data

USER plaza
ENV PLAZA_HOST=0.0.0.0 PLAZA_DATA_DIR=/data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --start-period=30s --interval=10s --timeout=3s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
CMD ["plaza", "serve"]
